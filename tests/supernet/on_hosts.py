"""What `test_hosts` starts under torchrun on several hosts: one training that continues from where it was."""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

from tests.helpers.small_training import built, data, supernet_of, trained


class Slow(Dataset):
    """Examples that take a while, so that a host can be killed in the middle."""

    def __init__(self, seconds: float) -> None:
        self.examples, self.seconds = data(64), seconds

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        time.sleep(self.seconds)
        return self.examples[index]


def run(directory: Path, max_steps: int, seconds: float) -> None:
    """Train on this host's own disk, 48 examples a step in 12 micro-batches of all processes."""
    own = directory / os.uname().nodename
    supernet = trained(
        supernet_of(built(dropout=0.0)),
        own / "training",
        data=Slow(seconds),
        epochs=8,
        batch_size=4,
        examples_per_step=24,
        checkpoint_every=1,
        max_steps=max_steps or None,
    )
    torch.save(supernet.state_dict(), own / "end.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
