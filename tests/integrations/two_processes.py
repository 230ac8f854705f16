"""What `test_two_processes` starts under torchrun: one loop after the other, each process noting its results."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from cafenet.training.process_group import processes
from tests.integrations import loops


def run(place: Path, rank: int) -> None:
    processes()  # of a user's own loop, who calls init_process_group
    # every process samples with another seed until the first step
    steps = loops.shards(2, interleaved=True)
    loops.plain_loop(loops.images(seed=rank), rank, steps).save(place / f"plain.{rank}.pt")
    if find_spec("lightning"):
        trace = loops.lightning_loop(loops.images(), place, strategy="ddp", devices=2)
        trace.save(place / f"lightning.{rank}.pt")
    if find_spec("accelerate"):
        loops.accelerate_loop(loops.images(), place).save(place / f"accelerate.{rank}.pt")
    if find_spec("accelerate") and find_spec("transformers"):
        loops.trainer_loop(loops.texts(), place).save(place / f"trainer.{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), int(os.environ["RANK"]))
