"""The whole job: from a recipe to a run directory with trained slim models and a table of results."""
