"""Fair comparison of two methods: the same seeds for both, and the difference with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cafenet.errors import CafeNetError


@dataclass(frozen=True)
class PairedDifference:
    """The difference first - second over pairs, with a Student-t interval of the mean.

    Examples:
        >>> from cafenet.common.statistics import compare_paired
        >>> difference = compare_paired([0.93, 0.94, 0.92], [0.91, 0.92, 0.91])
        >>> print(difference)
        +0.01667 [+0.002324, +0.03101] (3 pairs)
        >>> difference.is_clear
        True
    """

    mean: float
    """Mean of the differences."""
    low: float
    """Lower end of the interval, or minus infinity for a single pair."""
    high: float
    """Upper end of the interval, or infinity for a single pair."""
    num_pairs: int
    """Number of pairs."""
    confidence: float
    """Confidence level of the interval, for example 0.95."""

    @property
    def is_clear(self) -> bool:
        """Whether zero lies outside of the interval, which is required to claim that one method is better."""
        return self.num_pairs > 1 and not self.low <= 0 <= self.high

    def __str__(self) -> str:
        if self.num_pairs == 1:
            return f"{self.mean:+.4g} (one pair, no interval)"
        return f"{self.mean:+.4g} [{self.low:+.4g}, {self.high:+.4g}] ({self.num_pairs} pairs)"


def compare_paired(first: Sequence[float], second: Sequence[float], *, confidence: float = 0.95) -> PairedDifference:
    """Computes the mean of first - second over pairs, with its interval.

    Args:
        first: Values of the first method, one per seed.
        second: Values of the second method for the same seeds, in the same order.
        confidence: Confidence level of the interval, between 0 and 1.

    Returns:
        The mean difference with its Student-t interval.

    Raises:
        CafeNetError: If the lengths differ, if there are no values, or if a value is not a finite number.

    Examples:
        >>> from cafenet.common.statistics import compare_paired
        >>> difference = compare_paired([3, 5], [1, 2])
        >>> round(difference.mean, 1), round(difference.low, 1), round(difference.high, 1)
        (2.5, -3.9, 8.9)
        >>> difference.is_clear
        False
    """
    left, right = _numbers(first), _numbers(second)
    if len(left) != len(right) or len(left) == 0:
        raise CafeNetError(
            f"a paired comparison needs as many values of both methods, one a seed, but got {len(left)} and "
            f"{len(right)}"
        )
    if not 0 < confidence < 1:
        raise CafeNetError(f"`0 < confidence < 1` must hold, but got {confidence}")
    differences = left - right
    if not np.isfinite(differences).all():
        raise CafeNetError(f"compared values must be finite, but are {list(first)} and {list(second)}")
    mean, num_pairs = float(differences.mean()), len(differences)
    if num_pairs == 1:
        return PairedDifference(mean, -np.inf, np.inf, 1, confidence)
    from scipy.special import stdtrit  # takes long to import

    error = float(differences.std(ddof=1)) / num_pairs**0.5
    reach = float(stdtrit(num_pairs - 1, 0.5 + confidence / 2)) * error
    return PairedDifference(mean, mean - reach, mean + reach, num_pairs, confidence)


def _numbers(values: Sequence[float]) -> npt.NDArray[np.float64]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(())
    if numbers.ndim != 1:
        raise CafeNetError(f"compared values must be lists of numbers, one a seed, but one is {values!r:.60}")
    return numbers


def in_words(difference: PairedDifference) -> str:
    """Describes a difference of accuracies, for example `+0.52 points (95% interval +0.10 to +0.94)`.

    Args:
        difference: A difference of accuracies as shares of 1.

    Returns:
        The text, which says so if the difference is not clear.
    """
    points = f"{100 * difference.mean:+.2f} points"
    if difference.num_pairs == 1:
        return f"{points} (1 seed, so it may be chance)"
    interval = f"95% interval {100 * difference.low:+.2f} to {100 * difference.high:+.2f}"
    return f"{points} ({interval}{'' if difference.is_clear else ', not clear'})"
