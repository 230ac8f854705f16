"""docs/reliability.md, made of the outcomes."""

from benchmarks.search_results import Results

PARTS = ("kills", "damaged", "inputs", "hostile", "models")


def markdown(results: Results) -> str:
    return "# Reliability\n"
