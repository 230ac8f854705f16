"""Where the data of the benchmarks lie: the directory that CAFENET_DATA names, or `shared/data` beside the checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("CAFENET_DATA", ROOT.parent / "shared" / "data"))
CIFAR = DATA / "cifar10"
"""train.npz and test.npz with `images` (N, 32, 32, 3) of uint8 and `labels`."""
CHANNEL_BENCH = DATA / "channel-bench" / "resnet.json.gz"
