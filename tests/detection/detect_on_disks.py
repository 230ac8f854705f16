"""What `test_torchrun` starts under torchrun: a whole detection run, each process with a disk of its own."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from cafenet.detection import detect
from cafenet.errors import CafeNetError

if __name__ == "__main__":
    torch.set_num_threads(1)
    place, shift = Path(sys.argv[1]), int(os.environ["TEST_SHIFT"])
    rank = int(os.environ["RANK"])
    os.environ["LOCAL_RANK"] = "0"  # the first process of its host, as far as it knows
    own = place / f"disk-{(rank + shift) % 2}"
    recipe = str(place / "tiny.yaml")
    rows = detect(recipe, own, flags=["--seeds", "[0]"], quiet=True)
    (place / f"rows-{shift}-{rank}.json").write_text(json.dumps([asdict(row) for row in rows]))
    try:
        detect(recipe, own, flags=["--seeds", "[0]", "--train.epochs", "2"], quiet=True)
    except CafeNetError as error:
        (place / f"refused-{shift}-{rank}.txt").write_text(str(error))
