"""Parts that all trainings share: the loop, batches, optimisers, losses, checkpoints and processes."""
