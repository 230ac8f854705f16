"""What `test_torchrun` starts under torchrun: trainings one after the other, each process noting its results."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset

from cafenet.supernet.candidate_choice import Race
from tests.helpers.small_training import built, data, supernet_of, trained

RANK = int(os.environ["RANK"])


class Interrupted(Dataset):
    """Sends its own process a signal when the n-th example is read, in one of the processes."""

    def __init__(self, at: int) -> None:
        self.examples, self.reads, self.at = data(64), 0, at

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        self.reads += 1
        if self.reads == self.at and RANK == 1:
            signal.raise_signal(signal.SIGTERM)
        return self.examples[index]


def run(directory: Path) -> None:
    def note(name: str, supernet: torch.nn.Module) -> None:
        torch.save(supernet.state_dict(), directory / f"{name}.{RANK}.pt")

    note("exact", trained(supernet_of(built(dropout=0.0)), directory / "exact", epochs=2))
    note(
        "race",
        trained(supernet_of(built(dropout=0.0), choice=Race(chunk=0.25, min_examples=2)), directory / "race", epochs=2),
    )
    # every process starts from the first one's weights and width samples
    note("other", trained(supernet_of(built(dropout=0.0, seed=RANK), seed=RANK), epochs=2))
    # dropout differs between processes, and goes on where it was
    note("whole", trained(supernet_of(), directory / "whole", epochs=2))
    torch.save(torch.get_rng_state(), directory / f"random.{RANK}.pt")
    trained(supernet_of(), directory / "parts", epochs=2, max_steps=3)
    note("parts", trained(supernet_of(), directory / "parts", epochs=2))
    # a signal to one of them stops both
    try:
        trained(supernet_of(), directory / "stopped", data=Interrupted(at=20), epochs=2)
    except KeyboardInterrupt as stop:
        (directory / f"stopped.{RANK}.txt").write_text(str(stop))
    note("stopped", trained(supernet_of(), directory / "stopped", epochs=2))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]))
