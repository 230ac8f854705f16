"""Rules: the effect of each operator on the channels that flow through it."""
