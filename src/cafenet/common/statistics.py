"""Comparing two methods fairly: the same seeds for both, the difference with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cafenet.errors import CafeNetError


@dataclass(frozen=True)
class PairedDifference:
    """first - second over pairs, with a Student-t interval of the mean; one pair has no interval."""

    mean: float
    low: float
    high: float
    num_pairs: int
    confidence: float

    @property
    def is_clear(self) -> bool:
        """Whether zero lies outside the interval: only then may a win be claimed."""
        return self.num_pairs > 1 and not self.low <= 0 <= self.high

    def __str__(self) -> str:
        if self.num_pairs == 1:
            return f"{self.mean:+.4g} (one pair, no interval)"
        return f"{self.mean:+.4g} [{self.low:+.4g}, {self.high:+.4g}] ({self.num_pairs} pairs)"


def compare_paired(first: Sequence[float], second: Sequence[float], *, confidence: float = 0.95) -> PairedDifference:
    """The mean of first - second, pair by pair: (3, 5) and (1, 2) differ by 2.5, from -3.9 to 8.9 at 95%."""
    if len(first) != len(second) or len(first) == 0:
        raise CafeNetError(
            f"a paired comparison needs as many values of both methods, one a seed, but got {len(first)} and "
            f"{len(second)}"
        )
    if not 0 < confidence < 1:
        raise CafeNetError(f"`0 < confidence < 1` must hold, but got {confidence}")
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise CafeNetError(f"compared values must be finite, but are {list(first)} and {list(second)}")
    mean, num_pairs = float(differences.mean()), len(differences)
    if num_pairs == 1:
        return PairedDifference(mean, -np.inf, np.inf, 1, confidence)
    from scipy.special import stdtrit  # takes long to import

    error = float(differences.std(ddof=1)) / num_pairs**0.5
    reach = float(stdtrit(num_pairs - 1, 0.5 + confidence / 2)) * error
    return PairedDifference(mean, mean - reach, mean + reach, num_pairs, confidence)


def in_words(difference: PairedDifference) -> str:
    """`+0.52 points (95% interval +0.10 to +0.94)`, of shares; says where one may not claim it."""
    points = f"{100 * difference.mean:+.2f} points"
    if difference.num_pairs == 1:
        return f"{points} (one seed, no claim)"
    interval = f"95% interval {100 * difference.low:+.2f} to {100 * difference.high:+.2f}"
    return f"{points} ({interval}{'' if difference.is_clear else ', not clear'})"
