"""What the tests of scoring and searching share: data that is hard enough, a small trained supernet, table scorers."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from cafenet import WidthSpace
from cafenet.scoring.scorer import Score
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import Bins, GroupBins, flops_sensitive_bins
from cafenet.supernet.candidate_choice import Exact
from cafenet.supernet.sharing import LocallyFree, Sharing
from cafenet.supernet.supernet import Supernet
from tests.helpers.small_training import batch, built, traced, trained


def noisy(size: int, seed: int, noise: float = 1.5) -> TensorDataset:
    """Images of the four classes that a small network gets right now and then."""
    images, labels = batch(size, seed)
    return TensorDataset(
        images + noise * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed)), labels
    )


TRAIN, VALIDATION = noisy(96, 1), noisy(256, 2)


@functools.cache
def _trained_state() -> dict[str, Tensor]:
    with torch.random.fork_rng(), torch.enable_grad():
        return trained(untrained(), data=noisy(256, 3), epochs=6, batch_size=16).model.state_dict()


def untrained(sharing: Sharing | None = None, beta: float = 1.0) -> Supernet:
    """What `tiny` is before it has learned anything."""
    space, bins = _space(beta)
    return Supernet(built(), space, bins, sharing or LocallyFree(1), choice=Exact()).train()


@functools.cache
def _space(beta: float) -> tuple[WidthSpace, Bins]:
    space = traced(built())
    return space, flops_sensitive_bins(space, beta)


def tiny(sharing: Sharing | None = None, beta: float = 1.0) -> Supernet:
    """A new supernet of `Plain` with the same trained weights each time: 8 widths of `one` times 6 of `two`.

    With beta = 0.5 these are 8 x 12.
    """
    supernet = untrained(sharing, beta)
    supernet.model.load_state_dict(_trained_state())
    return supernet


def every_vector(num_bins: Iterable[int]) -> np.ndarray:
    """All vectors of bin counts."""
    return np.array(list(itertools.product(*(range(1, int(n) + 1) for n in num_bins))), dtype=np.int64)


def counted(model: nn.Module, inputs: Tensor) -> dict[str, int]:
    """FLOPs (one multiply-add is one) of a real forward pass, and the parameters there are."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model.eval()(inputs)
    return {"flops": counter.get_total_flops() // 2, "params": sum(p.numel() for p in model.parameters())}


def binned(*num_bins: int) -> Bins:
    """Groups of as many channels as bins."""
    return Bins(tuple(GroupBins(f"g{number}", n, 1, 1) for number, n in enumerate(num_bins)))


def weighted(*prices: float) -> Callable[[np.ndarray], np.ndarray]:
    """A cost that is so much per channel of each group."""
    return lambda widths: widths @ np.array(prices, dtype=float)


def feasible(num_bins: Iterable[int], limit: float, prices: Iterable[float] | None = None, **more: Any) -> Feasible:
    """Vectors under a cap on FLOPs that are a weighted sum; `params=(prices, limit)` caps a second sum."""
    num_bins = list(num_bins)
    costs = {"flops": weighted(*(prices or [1.0] * len(num_bins)))}
    caps = [Cap("flops", limit)]
    if "params" in more:
        costs["params"] = weighted(*more["params"][0])
        caps.append(Cap("params", more["params"][1]))
    return Feasible(binned(*num_bins), costs, Budget("b", tuple(caps)))


class TableScorer:
    """Scores a width vector by a function of it, and notes what it was asked for."""

    def __init__(
        self, value: Callable[[np.ndarray], float], chance: float | None = None, num_candidates: int = 3
    ) -> None:
        self._value, self.chance, self._num_candidates = value, chance, num_candidates
        self.asked: list[tuple[tuple[int, ...], bool]] = []

    def score(self, bin_counts: np.ndarray, bar: Score | None = None, *, exact: bool = False) -> Score:
        self.asked.append((tuple(bin_counts.tolist()), exact))
        return Score(float(self._value(bin_counts)), 0, self._num_candidates, 100, True, 0.0, None)
