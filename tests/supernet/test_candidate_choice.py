"""Finding the candidate with the smallest loss, on losses that are known beforehand."""

import numpy as np
import pytest
import torch

from cafenet.errors import BinError
from cafenet.supernet.candidate_choice import Exact, Race


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Examples:
    """Known losses, candidates x examples; notes how much of them was looked at."""

    def __init__(self, losses: np.ndarray) -> None:
        self.table = losses
        self.looked = 0

    def __call__(self, numbers, start, stop):
        size = self.table.shape[1]
        first, last = round(start * size), round(stop * size)
        self.looked += len(numbers) * (last - first)
        return torch.from_numpy(self.table[list(numbers), first:last].mean(axis=1))


def noisy(num_candidates: int, num_examples: int, seed: int) -> np.ndarray:
    """What candidates differ by is as large as the noise of one example."""
    generator = np.random.default_rng(seed)
    return generator.normal(2, 1, (1, num_examples)) + generator.normal(0, 0.3, (num_candidates, 1)) * 1.0


def test_exact_sees_everything_and_takes_the_minimum():
    examples = Examples(np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 2.0]]))
    assert Exact().best(3, 2, examples, generator()) == (1, [2.0, 1.5, 2.0])
    assert examples.looked == 6


def test_of_equal_candidates_the_first_is_taken():
    assert Exact().best(3, 2, Examples(np.ones((3, 2))), generator())[0] == 0


@pytest.mark.parametrize("num_candidates", [2, 3, 4])  # more candidates begin on a smaller part
@pytest.mark.parametrize("seed", range(3))
def test_a_race_over_the_whole_batch_is_exact(num_candidates, seed):
    table = np.random.default_rng(seed).normal(size=(num_candidates, 64))
    raced = Race(chunk=1.0).best(num_candidates, 64, Examples(table), generator())
    assert raced == Exact().best(num_candidates, 64, Examples(table), generator())


def test_the_rounds_of_three_candidates_by_hand():
    # 64 examples in chunks of 8: all see two chunks, the better two see one more, and the rest is not used
    table = np.zeros((3, 64))
    table[:, :16] = [[1.0], [2.0], [3.0]]
    table[:, 16:24] = [[7.0], [2.0], [0.0]]  # the third would be best in the end, but is out by then
    table[:, 24:] = [[0.0], [9.0], [0.0]]
    examples = Examples(table)
    assert Race().best(3, 64, examples, generator()) == (1, [3.0, 2.0, 3.0])
    assert examples.looked == 3 * 16 + 2 * 8


def test_the_rounds_of_four_candidates_by_hand():
    # 64 examples in chunks of 8: all four see two chunks, the better two see two more
    table = np.zeros((4, 64))
    table[0, :16], table[0, 16:32] = 1.0, 7.0
    table[1, :16], table[1, 16:32] = 2.0, 4.0
    table[2, :16], table[2, 16:32] = 4.0, 0.0  # best in the end, but out by then
    table[3, :16] = 5.0
    table[1, 32:] = 99.0
    examples = Examples(table)
    assert Race().best(4, 64, examples, generator()) == (1, [4.0, 3.0, 4.0, 5.0])
    assert examples.looked == 4 * 16 + 2 * 16


def test_every_candidate_of_many_enters_now_and_then():
    drawn, chance = set(), generator()
    for _ in range(20):
        _, seen = Race().best(35, 256, Examples(np.ones((35, 256))), chance)
        entered = np.flatnonzero(np.isfinite(seen))
        assert len(entered) == 12
        drawn |= set(entered.tolist())
    assert drawn == set(range(35))


@pytest.mark.parametrize(
    ("num_candidates", "rounds"),
    [(1, [(2, 1)]), (2, [(2, 2), (1, 2)]), (3, [(2, 3), (1, 2)]), (10, [(2, 6), (2, 2)]), (35, [(2, 12), (2, 3)])],
)
def test_the_plan_for_a_batch_of_256(num_candidates, rounds):
    assert Race().plan(num_candidates, 256) == (1 / 8, rounds)


def test_small_batches_have_larger_chunks_and_fewer_rounds():
    assert Race().plan(10, 16) == (0.5, [(1, 6), (1, 2)])  # chunks of at least 8 examples
    assert Race().plan(3, 16) == (0.5, [(1, 3), (1, 2)])
    assert Race().plan(3, 4) == (1.0, [(1, 3)])


@pytest.mark.parametrize("options", [{"chunk": 0}, {"chunk": 1.5}, {"min_examples": 0}])
def test_bad_races(options):
    with pytest.raises(BinError, match="a race needs 0 < chunk <= 1 and min_examples >= 1, but got"):
        Race(**options)


@pytest.mark.parametrize("num_candidates", [2, 3, 10, 35])
def test_a_race_looks_at_a_part_and_finds_a_candidate_that_is_best_everywhere(num_candidates):
    for seed in range(5):
        table = noisy(num_candidates, 256, seed)  # the order of candidates is the same on every example
        examples = Examples(table)
        winner, seen = Race().best(num_candidates, 256, examples, generator())
        assert winner == int(np.nanargmin(np.where(np.isfinite(seen), table.mean(axis=1), np.nan)))
        assert len(seen) == num_candidates
        assert examples.looked < 0.5 * table.size


@pytest.mark.parametrize("batch_size", [1, 2, 7, 8, 9, 33, 256])
@pytest.mark.parametrize("num_candidates", [2, 3, 10])
def test_a_race_never_leaves_the_batch(batch_size, num_candidates):
    def losses(numbers, start, stop):
        assert set(numbers) <= set(range(num_candidates))
        assert 0 <= start < stop <= 1 + 1e-9
        return torch.tensor([float(number == 0) for number in numbers], dtype=torch.float64)

    winner, _ = Race().best(num_candidates, batch_size, losses, generator())
    assert 1 <= winner < num_candidates
