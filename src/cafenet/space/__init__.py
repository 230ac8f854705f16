"""The width space and its costs: width groups, slots, slicing, slim models and their files, and bins."""
