"""Scores of widths and of models: metrics, recalibrated statistics, evaluation."""
