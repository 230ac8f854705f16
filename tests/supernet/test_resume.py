"""A run that was interrupted in any way ends with the weights of one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from cafenet.supernet.candidate_choice import Exact, Race
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig
from tests.helpers.small_training import Plain, assert_same_state, built, data, log_of, supernet_of, trained


class Augmented(Dataset):
    """Flips, shifts and noise from all three generators; something happens when an example is read the n-th time."""

    def __init__(self, at: int | None = None, happens=lambda: None) -> None:
        self.examples, self.reads, self.at, self.happens = data(64), 0, at, happens

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        self.reads += 1
        if self.reads == self.at:
            self.happens()
        image, label = self.examples[index]
        image = image.flip(-1) if random.random() < 0.5 else image
        image = image + 0.1 * torch.randn(image.shape)
        return image.roll(int(np.random.randint(3)), -1), label


def mixed(examples):
    """Mix-up in the collate function, with labels as probabilities."""
    images, labels = torch.utils.data.default_collate(examples)
    targets = torch.nn.functional.one_hot(labels, 4).float()
    share = random.random()
    order = torch.randperm(len(images))
    return share * images + (1 - share) * images[order], share * targets + (1 - share) * targets[order]


def options(**more):
    """Three epochs of 8 steps with everything that has a state: momentum, schedule, dropout, random candidates."""
    return {
        "epochs": 3,
        "random_share": 0.3,
        "schedule": ScheduleConfig("cosine", warmup_epochs=0.5),
        "checkpoint_every": 3,
        **more,
    }


def told(directory: Path) -> list[dict]:
    """The log without what depends on the clock."""
    return [{key: value for key, value in line.items() if key != "examples_per_second"} for line in log_of(directory)]


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (supernet_of, {}),
        (lambda: supernet_of(choice=Race(chunk=0.125, min_examples=2)), {}),
        (lambda: supernet_of(sharing=LocallyFree(1, per_group=True)), {}),
        (supernet_of, {"optimizer": OptimizerConfig("RMSprop", lr=0.01)}),
        (supernet_of, {"optimizer": OptimizerConfig("AdamW", lr=0.01)}),
        (supernet_of, {"accumulate": 2}),
        (supernet_of, {"sandwich": 1, "channels_last": True}),
        (supernet_of, {"amp": "bf16"}),
    ],
)
@pytest.mark.parametrize("stops", [(5,), (1, 8, 9)])
def test_resumed_equals_uninterrupted(make, more, stops, tmp_path):
    whole = trained(make(), tmp_path / "whole", data=Augmented(), **options(**more))
    for stop in stops:
        trained(make(), tmp_path / "parts", data=Augmented(), max_steps=stop, **options(**more))
        torch.rand(7)  # whatever the process does in between
    parts = trained(make(), tmp_path / "parts", data=Augmented(), **options(**more))
    assert_same_state(parts, whole)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resumed_equals_uninterrupted_with_mix_up_and_workers(num_workers, tmp_path):
    def loader(workers):
        return DataLoader(Augmented(), batch_size=8, shuffle=True, collate_fn=mixed, num_workers=workers)

    whole = trained(supernet_of(), tmp_path / "whole", data=loader(0), epochs=2)
    trained(supernet_of(), tmp_path / "parts", data=loader(num_workers), epochs=2, max_steps=11)
    parts = trained(supernet_of(), tmp_path / "parts", data=loader(0), epochs=2)
    assert_same_state(parts, whole)


def test_workers_change_nothing():
    one, two = (trained(supernet_of(), data=Augmented(), num_workers=workers) for workers in (0, 2))
    assert_same_state(one, two)


def test_checkpoints_themselves_change_nothing(tmp_path):
    often = trained(supernet_of(), tmp_path / "often", data=Augmented(), checkpoint_every=1)
    assert_same_state(often, trained(supernet_of(), data=Augmented()))


def test_a_finished_run_is_not_run_again(tmp_path):
    first = trained(supernet_of(), tmp_path)
    again = supernet_of(built(seed=9))
    trained(again, tmp_path)
    assert_same_state(again, first)
    assert len(log_of(tmp_path)) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first(number, tmp_path):
    whole = trained(supernet_of(), tmp_path / "whole", data=Augmented(), **options())
    handler = signal.getsignal(number)
    # 32 examples are read for the sketch, and example 70 for step 9; checkpoints come at 3, 6, 9, 12
    interrupted = Augmented(at=32 + 76, happens=lambda: signal.raise_signal(number))
    with pytest.raises(KeyboardInterrupt, match=f"stopped by {number.name} after step 10; start again to continue"):
        trained(supernet_of(), tmp_path / "parts", data=interrupted, **options())
    assert signal.getsignal(number) is handler
    assert torch.load(tmp_path / "parts" / "supernet.pt", weights_only=True)["step"] == 10
    parts = trained(supernet_of(), tmp_path / "parts", data=Augmented(), **options())
    assert_same_state(parts, whole)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")


def stop_all() -> None:
    """What a scheduler does: a SIGTERM to the training and to its loader's worker, here by the worker itself."""
    os.kill(os.getppid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_to_all_processes_saves_first(tmp_path):
    whole = trained(supernet_of(), tmp_path / "whole", data=Augmented(), **options())
    stopped = Augmented(at=40, happens=stop_all)  # the sketch reads 32 in another worker
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM after step"):
        trained(supernet_of(), tmp_path / "parts", data=stopped, num_workers=1, **options())
    parts = trained(supernet_of(), tmp_path / "parts", data=Augmented(), **options())
    assert_same_state(parts, whole)


def test_a_second_signal_does_not_wait(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    whole = trained(supernet_of(), data=Augmented(), **options())
    supernet = supernet_of()
    with pytest.raises(KeyboardInterrupt):
        trained(supernet, tmp_path, data=Augmented(at=32 + 76, happens=twice), **options())
    assert torch.load(tmp_path / "supernet.pt", weights_only=True)["step"] == 9
    # the same object goes on from the checkpoint, whatever the broken step left in it
    trained(supernet, tmp_path, data=Augmented(), **options())
    assert_same_state(supernet, whole)


def run_to_be_killed(directory: str) -> None:
    """What the other process does: the run, slowed down."""
    torch.set_num_threads(1)
    trained(supernet_to_be_killed(), Path(directory), data=Augmented(at=-1), loss=slow_cross_entropy, **options())


def supernet_to_be_killed() -> Supernet:
    return supernet_of(built(Plain), LocallyFree(1), Exact())


def slow_cross_entropy(output, target):
    time.sleep(0.02)
    return torch.nn.functional.cross_entropy(output, target)


def test_killed_at_a_random_step_and_resumed(tmp_path):
    whole = trained(supernet_to_be_killed(), data=Augmented(), loss=torch.nn.functional.cross_entropy, **options())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    script = f"from tests.supernet.test_resume import run_to_be_killed; run_to_be_killed({str(tmp_path)!r})"
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    log, wanted = tmp_path / "log.jsonl", random.SystemRandom().randint(4, 20)
    until = time.monotonic() + 60
    while not log.exists() or len(log.read_text().splitlines()) < wanted:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
    process.kill()
    process.wait()
    saved = torch.load(tmp_path / "supernet.pt", weights_only=True)["step"]
    assert 3 <= saved < 24
    assert saved % 3 == 0
    resumed = trained(supernet_to_be_killed(), tmp_path, data=Augmented(), loss=slow_cross_entropy, **options())
    assert_same_state(resumed, whole)
    assert [line["step"] for line in log_of(tmp_path)] == list(range(1, 25))
