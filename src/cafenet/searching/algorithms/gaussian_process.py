"""A regression from width shares to scores, which predicts the unscored widths that are worth scoring.

It is a Gaussian process with a linear and a smooth part. Its length scale and noise are the likeliest of a small grid,
and it uses at most 500 scores (the best and the latest), so that one generation takes some tens of milliseconds.
"""

import itertools

import numpy as np

from cafenet.scoring.scorer import FloatArray
from cafenet.space.bins import IntArray

_MOST_SCORES = 500
_LENGTH_SCALES = (0.25, 0.5, 1.0, 2.0)
"""Length scales of the grid, in units of the distance between two typical width vectors."""
_NOISES = (1e-4, 1e-2, 1e-1, 0.5)
"""Noise levels of the grid, as shares of the variance of the scores."""


def draw_promising(
    shares: FloatArray, values: FloatArray, candidates: FloatArray, num_drawn: int, rng: np.random.Generator
) -> IntArray:
    """Choose candidates to score: half by their expected score, half by Thompson sampling.

    For each Thompson draw, one function that fits the scores is drawn at random and its best candidate is taken. This
    explores if the regression is uncertain.

    Args:
        shares: Shares of the full width that were scored, one width vector per row.
        values: Their scores.
        candidates: Shares of the candidates, one width vector per row.
        num_drawn: Number of candidates to choose.
        rng: Source of random numbers.

    Returns:
        Row numbers of the chosen candidates.
    """
    from scipy.linalg import cholesky  # takes long to import

    mean, covariance = predict(shares, values, candidates)
    order = np.argsort(-mean, kind="stable")
    chosen = dict.fromkeys(order[: (num_drawn + 1) // 2].tolist())
    root = cholesky(
        covariance + 1e-6 * np.eye(len(mean)) * max(float(np.trace(covariance)) / len(mean), 1e-12), lower=True
    )
    drawn = mean[:, None] + root @ rng.standard_normal((len(mean), num_drawn))
    for column in drawn.T:
        if len(chosen) == num_drawn:
            break
        chosen[next(int(row) for row in np.argsort(-column) if int(row) not in chosen)] = None
    return np.array(list(chosen), dtype=np.int64)


def predict(shares: FloatArray, values: FloatArray, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predict the scores of candidates.

    Args:
        shares: Shares of the full width that were scored, one width vector per row.
        values: Their scores.
        candidates: Shares of the candidates, one width vector per row.

    Returns:
        The expected scores of the candidates, and their covariance matrix.
    """
    from scipy.linalg import cho_solve, cholesky, solve_triangular  # takes long to import

    kept = _kept(values)
    x, y = shares[kept], values[kept]
    center, scale = float(y.mean()), max(float(y.std()), 1e-12)
    y = (y - center) / scale
    middle = x.mean(axis=0)
    x, candidates = x - middle, candidates - middle
    typical = max(float(np.sqrt(2 * x.var(axis=0).sum())), 1e-6)
    best: tuple[float, float, FloatArray, float] | None = None
    for length_scale, noise in itertools.product(_LENGTH_SCALES, _NOISES):
        root = cholesky(_kernel(x, x, typical * length_scale, typical) + noise * np.eye(len(x)), lower=True)
        whitened = solve_triangular(root, y, lower=True)
        likelihood = -0.5 * float(whitened @ whitened) - float(np.log(np.diag(root)).sum())
        if best is None or likelihood > best[0]:
            best = likelihood, length_scale, root, noise
    assert best is not None
    _, length_scale, root, _ = best
    cross = _kernel(candidates, x, typical * length_scale, typical)
    mean = cross @ cho_solve((root, True), y)
    explained = solve_triangular(root, cross.T, lower=True)
    covariance = _kernel(candidates, candidates, typical * length_scale, typical) - explained.T @ explained
    return center + scale * mean, scale**2 * covariance


def _kept(values: FloatArray) -> IntArray:
    """Return the indices of the best half and the latest half of the scores that the regression can hold."""
    if len(values) <= _MOST_SCORES:
        return np.arange(len(values))
    best = np.argsort(-values, kind="stable")[: _MOST_SCORES // 2]
    latest = np.arange(len(values) - _MOST_SCORES // 2, len(values))
    return np.unique(np.concatenate([best, latest]))


def _kernel(left: FloatArray, right: FloatArray, length: float, typical: float) -> FloatArray:
    """Return the covariance of scores: smooth in the distance, plus linear in the (centred) shares."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None] - 2 * left @ right.T
    result: FloatArray = np.exp(-np.maximum(squares, 0) / (2 * length**2)) + left @ right.T / typical**2
    return result
