"""The places of the benchmarks' data and pages.

Data are looked for in the directory that CAFENET_DATA names, or in `shared/data` beside the checkout.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("CAFENET_DATA", ROOT.parent / "shared" / "data"))
CIFAR = DATA / "cifar10"
"""train.npz and test.npz with `images` (N, 32, 32, 3) of uint8 and `labels`."""
CHANNEL_BENCH = DATA / "channel-bench" / "resnet.json.gz"


def kept_results(name: str) -> Path:
    """The results that the page of a benchmark is made of."""
    return ROOT / "benchmarks" / name / "results.json"


def page_of(name: str, output: Path) -> Path:
    """The page of results: that of the documentation for the kept ones, one beside them for any others."""
    return ROOT / "docs" / f"{name}.md" if output.resolve() == kept_results(name) else output.with_suffix(".md")
