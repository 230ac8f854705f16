"""Faults that the check run finds: many in one run, and none where sizes follow from values."""

import itertools

import torch
from torch import Tensor, nn

import cafenet


class FixedView(nn.Module):
    """Gives its channels a size that is written into the code, by an op or by a reshape that raises before it."""

    def __init__(self, reshapes: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)
        self.reshapes = reshapes

    def forward(self, x: Tensor) -> Tensor:
        made = self.conv(x)
        if self.reshapes:
            return x + made.transpose(2, 3).reshape(1, 8, 4, 4)
        return x + made.view(1, 8, 4, 4)


RUNS = itertools.count()
"""One entry for each run; an attribute of the model would get its old value back after each."""


class Faulty(nn.Module):
    """Stages of which each has a fault and an innocent layer."""

    def __init__(self, num_stages: int, reshapes: bool) -> None:
        super().__init__()
        self.entries = nn.ModuleList(nn.Conv2d(3 if n == 0 else 8, 8, 1) for n in range(num_stages))
        self.innocent = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 6, 1), nn.Conv2d(6, 8, 1)) for _ in range(num_stages))
        self.fixed = nn.ModuleList(FixedView(reshapes) for _ in range(num_stages))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        next(RUNS)
        for entry, innocent, fixed in zip(self.entries, self.innocent, self.fixed, strict=True):
            x = entry(x)
            x = fixed(x + innocent(x))
        return self.head(x.mean((2, 3)))


def runs_of(num_stages: int, reshapes: bool) -> int:
    before = next(RUNS)
    space = cafenet.trace(Faulty(num_stages, reshapes), torch.zeros(1, 3, 4, 4))
    assert [group.name for group in space.groups] == [f"innocent.{n}.0" for n in range(num_stages)]
    frozen = {entry.name: entry.reason for entry in space.frozen}
    assert all("does not let its width vary" in frozen[f"entries.{n}"] for n in range(num_stages))
    assert all(f"(in fixed.{n})" in frozen[f"entries.{n}"] for n in range(num_stages))
    return next(RUNS) - before - 1


def test_many_faults_take_no_more_runs_than_one():
    for reshapes in (False, True):
        assert runs_of(12, reshapes) == runs_of(1, reshapes) == 4  # the trace, all faults, their suspects, none left


class Detector(nn.Module):
    """Returns the rows whose scores are positive: how many depends on the weights, not on any width."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 12, 3), nn.Conv2d(12, 10, 3)
        self.scores, self.boxes = nn.Conv2d(10, 1, 1), nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.second(self.first(x).relu()).relu()
        scores, boxes = self.scores(found).flatten(), self.boxes(found).flatten(2)[0].T
        good = torch.where(scores > scores.median())[0]
        large = boxes[good].sum(1) > boxes.mean()
        return boxes[good][large], scores[good][large]


def test_sizes_that_follow_from_values_freeze_nothing():
    torch.manual_seed(0)
    for _ in range(3):
        space = cafenet.trace(Detector(), torch.randn(1, 3, 16, 16))
        assert [group.name for group in space.groups] == ["first", "second"]
