"""What may vary and what it costs: width groups, slots, slicing, slim models and their files, bins."""
