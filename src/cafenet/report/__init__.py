"""One page of everything that a run knows."""
