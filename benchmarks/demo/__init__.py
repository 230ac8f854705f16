"""`make demo`: a trained network of hand-made widths, a quarter of its FLOPs, and the baselines a sceptic asks for."""
