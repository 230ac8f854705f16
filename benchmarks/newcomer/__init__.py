"""A newcomer's result: a trained network, one call of `cafenet.search` and nothing else."""
