"""Transformers within half of their FLOPs: CafeNet, Uniform and Torch-Pruning, trained alike."""
