"""The estimate of latency on widths that it has not seen, and budgets measured again in a new process."""
