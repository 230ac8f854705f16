"""Small parts that everything else uses: files, options, tables, limits, interrupts."""
