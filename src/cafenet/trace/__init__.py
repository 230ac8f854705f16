"""Tracing: one run of an unedited model on meta tensors, in which every channel is followed by name."""

from cafenet.trace.tracer import find_space, trace

__all__ = ["find_space", "trace"]
