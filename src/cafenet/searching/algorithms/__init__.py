"""Search algorithms, one per file: each proposes width vectors and is told their scores."""
