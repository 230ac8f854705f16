"""Searching widths within a budget: what may be spent, and the width vectors that spend it."""
