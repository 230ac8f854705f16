"""What all trainings share: the loop, batches, optimisers, losses, checkpoints, processes."""
