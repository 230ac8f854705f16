"""Small parts that all other packages use: files, options, tables, limits and interrupts."""
