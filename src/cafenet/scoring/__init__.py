"""How good a width or a model is: metrics, recalibrated statistics, scores."""
