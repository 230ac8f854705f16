"""What `test_killed` starts: a loop of a library that gets kill -9 in the middle of a step, between two checkpoints.

The choices until then are lines of a file, since nothing else of the process is left.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.integrations import loops
from tests.integrations.loops import Trace

KILLED_AT = 12
"""The step, of 16, that is never done. An epoch has 8."""
SAVED_AT = {"lightning": 8, "accelerate": 8, "trainer": 9}
"""The step of the last checkpoint before it: the end of an epoch, or with the Trainer a step in the middle of one."""


def lightning(place: Path, trace: Trace, resume: bool) -> Trace:
    from lightning.pytorch.callbacks import ModelCheckpoint

    options = {"enable_checkpointing": True, "callbacks": [ModelCheckpoint(place, save_last=True)]}
    return loops.lightning_loop(trace, place, resume="last" if resume else None, **options)


def accelerate(place: Path, trace: Trace, resume: bool) -> Trace:
    return loops.accelerate_loop(trace, place, *((1, place / "accelerate") if resume else ()))


def trainer(place: Path, trace: Trace, resume: bool) -> Trace:
    return loops.trainer_loop(trace, place, resume, save_steps=3)


LOOPS: dict[str, Callable[[Path, Trace, bool], Trace]] = {
    "lightning": lightning,
    "accelerate": accelerate,
    "trainer": trainer,
}


def fresh(name: str, seed: int = 0) -> Trace:
    return loops.texts(seed) if name == "trainer" else loops.images(seed)


def kill_within(trace: Trace, place: Path) -> None:
    """Let the process die in a trial pass of a step, as with kill -9."""
    pick, trial_losses = trace.supernet.pick, trace.supernet._trial_losses

    def noted(*args: Any, **options: Any) -> Any:
        picked = pick(*args, **options)
        with (place / "choices").open("a") as file:
            file.write(json.dumps(trace.choices[-1]) + "\n")
        return picked

    def dying(*args: Any, **options: Any) -> Any:
        if len(trace.choices) == KILLED_AT - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return trial_losses(*args, **options)

    trace.supernet.pick = noted  # type: ignore[method-assign]
    trace.supernet._trial_losses = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, place = sys.argv[1], Path(sys.argv[2])
    trace = fresh(name)
    kill_within(trace, place)
    LOOPS[name](place, trace, False)
