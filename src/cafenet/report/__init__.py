"""Pages and figures of runs."""
