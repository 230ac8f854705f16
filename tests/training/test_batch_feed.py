"""The order of examples and the numbers that augmentations draw depend on seed, epoch and step, on nothing else."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from cafenet.errors import TrainingError
from cafenet.training.batch_feed import Feed, draw_uniform

NUMBERS = TensorDataset(torch.arange(50))


class Augmented(Dataset):
    """Every example comes with a number from each of the three generators that transforms use."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int):
        return index, torch.rand(()), random.random(), np.random.rand()


def mixing(examples):
    """A collate function that draws, as mix-up does."""
    index, one, two, three = (torch.tensor(column) for column in zip(*examples, strict=True))
    return index, one, two, three, torch.rand(()), random.random(), np.random.rand()


def seen(feed: Feed, epoch: int = 0, first_step: int = 0) -> list[list[list[int]]]:
    """Example numbers by step and micro-batch."""
    return [[micro[0].tolist() for micro in step] for step in feed.epoch(epoch, first_step)]


def numbers_of(steps) -> list:
    return [[[torch.as_tensor(part).tolist() for part in micro] for micro in step] for step in steps]


def test_an_epoch_sees_every_example_at_most_once_and_whole_steps_only():
    feed = Feed(NUMBERS, batch_size=8)
    steps = seen(feed)
    assert feed.steps_per_epoch == len(steps) == 6
    flat = [number for step in steps for micro in step for number in micro]
    assert len(flat) == len(set(flat)) == 48
    assert flat != sorted(flat)


def test_the_order_depends_on_seed_and_epoch():
    feed = Feed(NUMBERS, batch_size=8, seed=3)
    assert seen(feed, 0) == seen(Feed(NUMBERS, batch_size=8, seed=3), 0)
    assert seen(feed, 0) != seen(feed, 1)
    assert seen(feed, 0) != seen(Feed(NUMBERS, batch_size=8, seed=4), 0)


def test_an_epoch_can_be_entered_anywhere():
    feed = Feed(NUMBERS, batch_size=8)
    for first in range(7):
        assert seen(feed, 2, first) == seen(feed, 2)[first:]


def test_two_processes_see_the_micro_batches_that_one_accumulates():
    together = seen(Feed(NUMBERS, batch_size=4, accumulate=4))
    ranks = [seen(Feed(NUMBERS, batch_size=4, accumulate=2, rank=rank, world_size=2)) for rank in range(2)]
    assert [one + two for one, two in zip(*ranks, strict=True)] == together
    # a step of one large batch is the same examples, too
    large = seen(Feed(NUMBERS, batch_size=16))
    assert [[number for micro in step for number in micro] for step in together] == [step[0] for step in large]


@pytest.mark.parametrize("collate", [None, mixing])
def test_random_augmentations_do_not_depend_on_what_was_drawn_before(collate):
    def feed(num_workers=0):
        return Feed(DataLoader(Augmented(), 4, collate_fn=collate, num_workers=num_workers), batch_size=1, seed=1)

    whole = numbers_of(feed().epoch(1))
    torch.manual_seed(77)
    random.seed(77)
    np.random.seed(77)
    torch.rand(3)
    assert numbers_of(feed().epoch(1, 2)) == whole[2:]
    assert numbers_of(feed(num_workers=2).epoch(1, 3)) == whole[3:]
    # but on the epoch, the seed and the example
    other_seed = Feed(DataLoader(Augmented(), 4, collate_fn=collate), batch_size=1, seed=2)
    runs = [whole, numbers_of(feed().epoch(2)), numbers_of(other_seed.epoch(1))]
    drawn = [value for run in runs for step in run for micro in step for column in micro[1:4] for value in column]
    assert len(set(drawn)) == len(drawn) == 3 * 24 * 3
    if collate is mixing:
        mixed = [value for run in runs for step in run for micro in step for value in micro[4:]]
        assert len(set(mixed)) == len(mixed) == 3 * 6 * 3


class Drawn(Dataset):
    """Examples that are their draws, handed out for a whole batch."""

    num_draws = 3

    def __len__(self):
        return 24

    def take(self, indices, draws):
        return [(index, *row) for index, row in zip(indices, draws.tolist(), strict=True)]


@pytest.mark.parametrize("collate", [None, mixing])
def test_numbers_drawn_for_a_batch_depend_on_seed_epoch_and_example_alone(collate):
    def rows(batch_size, seed=1, epoch=0, num_workers=0, first=0):
        loader = DataLoader(Drawn(), batch_size, collate_fn=collate, num_workers=num_workers)
        steps = numbers_of(Feed(loader, batch_size=1, seed=seed).epoch(epoch, first))
        return [row for step in steps for micro in step for row in zip(*micro[:4], strict=True)]

    whole = rows(4)
    torch.manual_seed(77)
    assert rows(4, num_workers=2) == whole == rows(8) == rows(3)
    assert rows(4, first=2) == whole[8:]
    values = [value for run in (whole, rows(4, seed=2), rows(4, epoch=1)) for row in run for value in row[1:]]
    assert len(set(values)) == 3 * 24 * 3
    assert all(0 <= value < 1 for value in values)


def test_what_a_collate_function_draws_after_a_batch_of_drawn_examples_is_repeatable():
    def mixed(epoch):
        steps = numbers_of(Feed(DataLoader(Drawn(), 4, collate_fn=mixing), batch_size=1, seed=1).epoch(epoch))
        return [value for step in steps for micro in step for value in micro[4:]]

    first = mixed(0)
    torch.manual_seed(77)
    assert mixed(0) == first
    assert len(set(first + mixed(1))) == 2 * 6 * 3


def test_drawn_numbers_are_uniform_and_without_a_pattern():
    draws = draw_uniform((3, 5), range(20_000), 8).double().numpy()
    counts = np.stack([np.histogram(column, 16, (0, 1))[0] for column in draws.T])
    chi_squared = ((counts - 1250) ** 2 / 1250).sum(axis=1)
    assert (chi_squared < 50).all()  # 15 degrees of freedom; beyond 50 in 1 of 80,000
    neighbours = np.concatenate([draws[:-1], draws[1:]], axis=1)
    correlation = np.corrcoef(neighbours.T) - np.eye(16)
    assert np.abs(correlation).max() < 0.04  # one is beyond 5.6 standard errors
    assert torch.equal(draw_uniform((3, 5), [7, 2], 8), draw_uniform((3, 5), range(8), 8)[[7, 2]])


def test_augmentations_leave_the_global_generators_alone():
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    list(Feed(Augmented(), batch_size=4).epoch(0))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert all(np.array_equal(one, two) for one, two in zip(np.random.get_state(), states[2], strict=True))


def test_a_loader_lends_its_batch_size_and_collate_function():
    loader = DataLoader(NUMBERS, batch_size=10, shuffle=True, collate_fn=lambda examples: torch.tensor([len(examples)]))
    feed = Feed(loader, batch_size=3)
    assert (feed.batch_size, feed.steps_per_epoch) == (10, 5)
    assert [micro.tolist() for (micro,) in feed.epoch(0)] == [[10]] * 5


@pytest.mark.parametrize(
    "sampler",
    [
        SubsetRandomSampler(range(10)),
        WeightedRandomSampler([1.0] * 50, 50),
        torch.utils.data.RandomSampler(NUMBERS, num_samples=20),
    ],
)
def test_a_sampler_that_would_be_lost_is_refused(sampler):
    with pytest.raises(TrainingError, match=f"must take every example once, but has a {type(sampler).__name__}"):
        Feed(DataLoader(NUMBERS, batch_size=5, sampler=sampler), batch_size=5)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])

    def __len__(self):
        return 10


@pytest.mark.parametrize("make", [Endless, lambda: DataLoader(Endless()), lambda: iter([])])
def test_data_without_an_order(make):
    with pytest.raises(TrainingError, match="must be a map-style data set"):
        Feed(make(), batch_size=1)


def test_a_loader_without_batches():
    with pytest.raises(TrainingError, match="must make batches of one size"):
        Feed(DataLoader(NUMBERS, batch_size=None), batch_size=1)


def test_too_few_examples():
    with pytest.raises(TrainingError, match="must hold at least one example, but is empty"):
        Feed(TensorDataset(torch.zeros(0)), batch_size=1)
    with pytest.raises(TrainingError, match=r"must fill one step of 4 x 16 examples, but has 50; lower the batch size"):
        Feed(NUMBERS, batch_size=16, accumulate=2, world_size=2)
