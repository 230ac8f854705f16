"""What `test_detection_torchrun` starts under torchrun: one training, each process noting its result."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from cafenet.detection import DetectionTraining, build_detector, train_detector
from tests.helpers.cells import SMALL, pictures, tiny_net

CONFIG = DetectionTraining(epochs=1, batch_size=2, log_every=1)


def trained(place: Path, config: DetectionTraining, directory: Path | None = None, **options) -> torch.nn.Module:
    """Frozen norms and RetinaNet, so that nothing depends on how images are divided."""
    torch.manual_seed(0)
    detector = build_detector(tiny_net(), 2, replace(SMALL, framework="retinanet", frozen_norms=True))
    train_detector(detector, pictures(place, 8), config, directory=directory, quiet=True, **options)
    return detector


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, rank = Path(sys.argv[1]), os.environ["RANK"]
    disk = place / f"disk-{rank}"  # each process has its own, and only the first one's holds the checkpoint
    trained(place / rank, CONFIG, disk, max_steps=1)
    torch.save(trained(place / rank, CONFIG, disk).state_dict(), place / f"{rank}.pt")
