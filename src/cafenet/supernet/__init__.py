"""The shared weights: which bins stand for a width, the choice of the best candidate, and training."""
