"""The trials of a search on disk or in a database."""
