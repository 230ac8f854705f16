"""Differences in the words of people who have not followed the work: what was saved, and what it cost.

Smallest example: 50% of the FLOPs and 0.35 points less than the original, with one seed, are "Half the FLOPs, 0.35
points below the original (1 seed)".
"""

from collections.abc import Sequence

from cafenet.common.statistics import PairedDifference

_NOISE = 0.5
"""Points of accuracy that two trainings of one network easily differ by; with one seed, less is no difference."""
_FRACTIONS = {
    1 / 4: "A quarter of",
    1 / 3: "A third of",
    1 / 2: "Half",
    2 / 3: "Two thirds of",
    3 / 4: "Three quarters of",
}


def share_in_words(share: float, cost: str) -> str:
    """Return what is left of a cost.

    Args:
        share: The cost of the slim model, as a share of the original's.
        cost: Name of the cost.

    Returns:
        The text, for example "Half the FLOPs" or "38% of the FLOPs".

    Example:
        >>> from cafenet.common.verdict_words import share_in_words
        >>> share_in_words(0.497, "FLOPs"), share_in_words(0.38, "FLOPs")
        ('Half the FLOPs', '38% of the FLOPs')
    """
    for fraction, words in _FRACTIONS.items():
        if abs(share - fraction) <= 0.02 * fraction:
            return f"{words} the {cost}"
    return f"{share:.0%} of the {cost}"


def beside(difference: PairedDifference, other: str, *, is_original: bool = False) -> str:
    """Return how a model stands beside another one. More is claimed only where the seeds support it.

    Args:
        difference: Accuracy of the model minus that of the other one.
        other: The other model in words, for example "Uniform" or "the original".
        is_original: True if the other model is the original. A loss against it is always stated as a number.

    Returns:
        The text, without the number of seeds.

    Example:
        >>> from cafenet.common.statistics import compare_paired
        >>> from cafenet.common.verdict_words import beside
        >>> beside(compare_paired([0.9], [0.91]), "Uniform"), beside(compare_paired([0.9], [0.901]), "Uniform")
        ('1.00 points below Uniform', 'no different from Uniform')
    """
    points = 100 * difference.mean
    if abs(points) < 0.005 and difference.num_pairs == 1:
        return f"level with {other}"
    amount = f"{abs(points):.2f} points {'above' if points > 0 else 'below'} {other}"
    if difference.num_pairs == 1:
        is_noise = abs(points) < _NOISE and not (is_original and points < 0)
        return f"no different from {other}" if is_noise else amount
    if difference.is_clear or (is_original and points < 0):
        return amount
    return f"no clear difference from {other}"


def headline(saved: str, parts: Sequence[str], num_seeds: int) -> str:
    """Join what was saved and how the model stands beside others to one line.

    Args:
        saved: What is left of the cost.
        parts: How the model stands beside others, the original first.
        num_seeds: Number of trainings of each model.

    Returns:
        The line, without a full stop.
    """
    parts = _joined(parts)
    seeds = f"({num_seeds} seed{'s' if num_seeds != 1 else ''})"
    return f"{', '.join([saved, *parts[:1]])}{''.join(f'; {part}' for part in parts[1:])} {seeds}"


def _joined(parts: Sequence[str]) -> list[str]:
    """Join parts that say the same: "no different from the original or from Uniform"."""
    found: list[str] = []
    for part in parts:
        same, _, other = part.partition(" from ")
        if found and other and found[-1].startswith(f"{same} from "):
            found[-1] += f" or from {other}"
        else:
            found.append(part)
    return found
