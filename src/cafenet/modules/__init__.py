"""Runs of a user's module that do not change it: calls, inputs, snapshots and counted products."""
