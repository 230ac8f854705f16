"""The held-out share is seeded, stratified, and disjoint from what is trained on."""

import numpy as np
import pytest
import torch

from cafenet.data import hold_out, stratified_sample, stratified_split
from cafenet.errors import DataError
from tests.helpers.pictures import small_data


def test_by_hand():
    targets = torch.tensor([0] * 100 + [1] * 50)
    train, held_out = stratified_split(targets)
    assert np.bincount(targets[held_out]).tolist() == [10, 5]
    assert sorted([*train, *held_out]) == list(range(150))
    assert (np.diff(train) > 0).all()
    assert (np.diff(held_out) > 0).all()


def test_split_depends_on_the_seed_alone():
    targets = torch.arange(200) % 4
    torch.manual_seed(5)
    np.random.seed(5)
    first = stratified_split(targets, seed=1)[1].tolist()
    assert stratified_split(targets, seed=1)[1].tolist() == first
    assert stratified_split(targets, seed=2)[1].tolist() != first


@pytest.mark.parametrize(("share", "counts"), [(0.01, [1, 1, 1]), (0.5, [1, 2, 5]), (0.99, [1, 3, 9])])
def test_every_class_is_on_both_sides(share: float, counts: list[int]):
    targets = torch.tensor([0] * 2 + [1] * 4 + [2] * 10)
    train, held_out = stratified_split(targets, share)
    assert np.bincount(targets[held_out]).tolist() == counts
    assert set(targets[train].tolist()) == {0, 1, 2}


def test_class_with_a_single_image():
    with pytest.raises(DataError, match="two images or more to be divided, but class 1 has one"):
        stratified_split(torch.tensor([0, 0, 1, 2, 2]))
    with pytest.raises(DataError, match="noise: every class must have two images"):
        hold_out(small_data(5))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_share_that_is_no_share(share: float):
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        stratified_split(torch.arange(10) % 2, share)


def attributes(num_examples: int = 1000) -> torch.Tensor:
    """Attributes from rare (1%) to frequent (90%), some of them together more often than by chance."""
    rng = np.random.default_rng(0)
    base = rng.random((num_examples, 1)) * 0.3
    shares = np.array([0.01, 0.02, 0.05, 0.2, 0.5, 0.9])
    return torch.from_numpy((rng.random((num_examples, 6)) + base - 0.15 < shares).astype(np.float32))


def largest_error(targets: torch.Tensor, held_out: np.ndarray, share: float) -> float:
    """Of all attributes, the worst relative deviation of the number held out from the number wanted."""
    wanted = share * targets.sum(0)
    return float(((targets[held_out].sum(0) - wanted).abs() / wanted).max())


def test_attributes_are_shared_out_better_than_by_chance():
    targets = attributes()
    for seed in range(5):
        train, held_out = stratified_split(targets, 0.2, seed)
        assert len(held_out) == 200
        assert sorted([*train, *held_out]) == list(range(1000))
        chance = np.random.default_rng(seed).permutation(1000)[:200]
        assert largest_error(targets, held_out, 0.2) < 0.16
        assert largest_error(targets, held_out, 0.2) < largest_error(targets, chance, 0.2)


def test_attributes_that_nobody_or_everybody_has():
    targets = torch.zeros(50, 3)
    targets[:, 1] = 1
    targets[:10, 2] = 1
    _, held_out = stratified_split(targets, 0.2)
    assert targets[held_out].sum(0).tolist() == [0, 10, 2]


def test_split_of_attributes_depends_on_the_seed_alone():
    targets = attributes()
    first = stratified_split(targets, seed=1)[1].tolist()
    assert stratified_split(targets, seed=1)[1].tolist() == first
    assert stratified_split(targets, seed=2)[1].tolist() != first


def test_too_few_examples_with_attributes():
    with pytest.raises(DataError, match="must leave some on both sides"):
        stratified_split(torch.ones(4, 2), 0.1)


def test_hold_out_divides_images_with_their_targets():
    data = small_data(60)
    train, validation = hold_out(data, 0.1, seed=3)
    assert (len(train), len(validation)) == (54, 6)
    index = stratified_split(data.targets, 0.1, seed=3)[1]
    assert torch.equal(validation.images, data.images[index])
    assert torch.equal(validation.targets, data.targets[index])


@pytest.mark.parametrize(("number", "counts"), [(31, [21, 10]), (2, [1, 1]), (1, [1, 0]), (299, [199, 100])])
def test_a_sample_has_exactly_so_many(number, counts):
    targets = torch.tensor([0] * 200 + [1] * 100)
    sample = stratified_sample(targets, number)
    assert np.bincount(targets[sample], minlength=2).tolist() == counts
    assert (np.diff(sample) > 0).all()


def test_a_sample_keeps_rare_classes():
    targets = torch.tensor([0] * 1000 + [1] + [2])
    assert np.bincount(targets[stratified_sample(targets, 10)]).tolist() == [8, 1, 1]


def test_a_sample_of_attributes():
    attributes = (torch.rand(90, 3, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    assert len(stratified_sample(attributes, 31)) == 31
