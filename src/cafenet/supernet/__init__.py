"""The shared weights: which bins stand for a width, which candidate is best, and their training."""
