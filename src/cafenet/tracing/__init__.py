"""Tracing: the way from a model and example inputs to its width space, by watching one run op by op."""
