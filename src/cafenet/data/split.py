"""The search's validation set: a seeded, stratified share of the training set. The test set is never part of it."""

from typing import Any

import numpy as np
from torch import Tensor

from cafenet.data.datasets import ImageData, IntArray
from cafenet.errors import DataError


def hold_out(data: ImageData, share: float = 0.1, seed: int = 0) -> tuple[ImageData, ImageData]:
    """Divide a training set into a part to train on and a part that the search is scored on.

    Args:
        data: The training set.
        share: Share of the examples that is held out.
        seed: Seed of the division.

    Returns:
        The remaining training set, and the part that is held out.

    Raises:
        DataError: If the share leaves no example on one side, or a class has only one image.

    Example:
        >>> from cafenet.data import fashion_mnist, hold_out
        >>> train, validation = hold_out(fashion_mnist().train, share=0.1)
        >>> len(train), len(validation)
        (5400, 600)
    """
    try:
        train, held_out = stratified_split(data.targets, share, seed)
    except DataError as error:
        raise DataError(f"{data.name}: {error}") from error
    return data.subset(train), data.subset(held_out)


def stratified_split(targets: Tensor, share: float = 0.1, seed: int = 0) -> tuple[IntArray, IntArray]:
    """Divide example numbers into two sorted arrays, of which the second has `share` of every class.

    With 100 images of class 0 and 50 of class 1, a share of 0.1 takes 10 and 5. Every class gives at least one image
    and keeps at least one. Attributes (N, A) are divided as evenly as possible, the rarest first.

    Args:
        targets: Class numbers (N,), or attributes (N, A).
        share: Share of the second part.
        seed: Seed of the division.

    Returns:
        The numbers of the first part and of the second part.

    Raises:
        DataError: If the share leaves no example on one side, or a class has only one image.
    """
    if not 0 < share < 1:
        raise DataError(f"the share that is held out must lie between 0 and 1, but is {share}")
    rng = np.random.default_rng(seed)
    values = targets.numpy()
    chosen = _by_class(values, share, rng) if values.ndim == 1 else _by_attributes(values, share, rng)
    is_held_out = np.zeros(len(values), dtype=bool)
    is_held_out[chosen] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def stratified_sample(targets: Tensor, number: int, seed: int = 0) -> IntArray:
    """Sample examples with the same share of every class: of 200 and 100 images, a sample of 31 has 21 and 10.

    Args:
        targets: Class numbers (N,), or attributes (N, A).
        number: Number of examples to sample.
        seed: Seed of the sample.

    Returns:
        The numbers of the examples, sorted.
    """
    if targets.ndim == 2:
        return stratified_split(targets, number / len(targets), seed)[1]
    rng, labels = np.random.default_rng(seed), targets.numpy()
    classes, counts = np.unique(labels, return_counts=True)
    wanted = number * counts / len(labels)
    taken = np.maximum(np.floor(wanted).astype(np.int64), int(number >= len(classes)))
    while taken.sum() != number:  # moves each class by at most one, except for rare classes
        step = 1 if taken.sum() < number else -1
        room = np.where((taken < counts) if step > 0 else (taken > 1), step * (wanted - taken), -np.inf)
        taken[np.argmax(room)] += step
    members = [rng.permutation(np.flatnonzero(labels == each))[:n] for each, n in zip(classes, taken, strict=True)]
    return np.sort(np.concatenate(members))


def _by_class(labels: Any, share: float, rng: np.random.Generator) -> IntArray:
    """Choose the second part class by class."""
    classes, counts = np.unique(labels, return_counts=True)
    single = classes[counts < 2].tolist()
    if single:
        shown = ", ".join(map(str, single[:5]))
        raise DataError(
            f"every class must have two images or more to be divided, but class {shown} has one; add images or drop it"
        )
    taken = [
        rng.permutation(np.flatnonzero(labels == number))[: min(max(1, int(count * share + 0.5)), count - 1)]
        for number, count in zip(classes, counts, strict=True)
    ]
    return np.concatenate(taken)


def _by_attributes(attributes: Any, share: float, rng: np.random.Generator) -> IntArray:
    """Choose the second part by iterative stratification, starting with the rarest attribute.

    Every chosen example counts for all of its attributes. A total surplus is taken back from the examples chosen last;
    a deficit is drawn from the rest.
    """
    has = np.concatenate([attributes > 0.5, np.ones((len(attributes), 1), dtype=bool)], axis=1)  # all have the last one
    wanted = share * has.sum(0)
    num_taken = int(wanted[-1] + 0.5)
    if not 0 < num_taken < len(has):
        raise DataError(f"a share of {share} of {len(has)} examples must leave some on both sides, but it does not")
    is_left = np.ones(len(has), dtype=bool)
    taken: list[IntArray] = []
    while is_left.any():
        counts = has[is_left].sum(0)
        rarest = int(np.argmin(np.where(counts > 0, counts, len(has) + 1)))
        members = rng.permutation(np.flatnonzero(is_left & has[:, rarest]))
        taken.append(members[: max(0, int(wanted[rarest] + 0.5))])
        wanted = wanted - has[taken[-1]].sum(0)
        is_left[members] = False
    rest = rng.permutation(np.setdiff1d(np.arange(len(has)), np.concatenate(taken)))
    return np.concatenate([*taken, rest])[:num_taken]
