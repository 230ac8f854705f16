"""Runtimes that serve models: files for them, sessions that run, and devices that answer in milliseconds."""
