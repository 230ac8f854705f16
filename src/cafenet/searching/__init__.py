"""The search for widths within a budget: budgets, width vectors that meet them, algorithms, trials and results."""
