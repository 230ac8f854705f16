"""Latency of models: measurements, an estimate for the search, and its correction by measurements."""
