"""Latency: measured, estimated in the loop, corrected at the end."""
