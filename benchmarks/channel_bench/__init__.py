"""Rankings of widths judged by a public table of trained networks."""
