"""The whole search: stages, and `cafenet.search` in one call."""
