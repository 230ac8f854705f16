"""The commands of `cafenet`, one module each: `add_to` declares its options."""
