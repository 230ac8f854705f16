"""The whole job: a recipe in, a run directory with trained slim models and their table out."""
