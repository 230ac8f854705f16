"""The trials of a search, in a journal file or in a database."""
