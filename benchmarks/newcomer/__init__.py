"""What a newcomer gets: a trained network, one call of `cafenet.search` and nothing else."""
