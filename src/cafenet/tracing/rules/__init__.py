"""What each operator does to the channels that flow through it."""
