"""What `make release` puts beside the wheel."""
