"""What proposes widths: one algorithm per module."""
