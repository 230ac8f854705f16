"""Tests of the training loops of other libraries."""
