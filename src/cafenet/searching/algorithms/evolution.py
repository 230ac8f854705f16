"""Evolutionary search (CafeNet-E of the paper): children of the best widths so far, screened by a cheap regression."""

from dataclasses import dataclass

import numpy as np

from cafenet.common.options import PositiveInt, PositiveShare, check_options
from cafenet.errors import ScoringError
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.base import Proposal, Proposals, distinct
from cafenet.searching.algorithms.gaussian_process import draw_promising
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray


@dataclass(frozen=True)
class Evolution:
    """Evolutionary search; the defaults, population 40 and 50 iterations, score 2,000 widths as in the paper.

    Example:
        >>> import cafenet
        >>> cafenet.Evolution(population=20, iterations=10).name
        'evolution'
    """

    population: PositiveInt = 40
    """Number of width vectors that are scored per iteration."""
    iterations: PositiveInt = 50
    """Number of iterations."""
    num_parents: PositiveInt = 10
    """Number of best vectors from which children are made."""
    mutation_rate: PositiveShare = 0.1
    """Probability that a mutation changes a group's width."""
    screened: PositiveInt = 10
    """Number of children that are made for each one that is scored. A regression on all scores so far selects the
    promising ones; with 1 they are selected at random, which is the plain algorithm."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """Short name that results are labelled with."""
        return "evolution"

    def num_widths(self, feasible: Feasible) -> int:
        """Return population times iterations, or the size of the search space if that is smaller.

        Args:
            feasible: The width vectors that meet the budget.

        Returns:
            The expected number of scored vectors.
        """
        return min(self.population * self.iterations, feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """Propose a first population over the whole space under the budget, then generations of children.

        Args:
            feasible: The width vectors that meet the budget.
            rng: Source of all random numbers.

        Yields:
            One proposal per iteration.
        """
        bin_counts = distinct(feasible.sample(self.population, rng))
        values = np.empty(0)
        num_old = 0
        for iteration in range(1, self.iterations + 1):
            label = f"iteration {iteration}"
            values = np.append(values, (yield Proposal(bin_counts[num_old:], self.num_parents, label=label)))
            num_old = len(bin_counts)
            children = self._children(bin_counts, values, feasible, rng)
            if len(children) == 0:
                return
            bin_counts = np.concatenate([bin_counts, children])

    def _children(
        self, bin_counts: IntArray, values: FloatArray, feasible: Feasible, rng: np.random.Generator
    ) -> IntArray:
        """Make new vectors: half of them by crossover and then often mutation, half by mutation only."""
        parents = bin_counts[np.argsort(-values, kind="stable")[: self.num_parents]]
        num_bred = self.population * max(self.screened, 2)  # some will turn out to be known already
        mothers, fathers = (parents[rng.integers(len(parents), size=num_bred)] for _ in range(2))
        is_crossed = rng.random(num_bred) < 0.5
        children = mothers.copy()
        if is_crossed.any():
            children[is_crossed] = feasible.crossover(mothers[is_crossed], fathers[is_crossed], rng)
        is_mutated = ~is_crossed | (rng.random(num_bred) < 0.5)
        children[is_mutated] = feasible.mutate(children[is_mutated], rng, self.mutation_rate)
        fresh = feasible.sample(max(self.population // 4, 1), rng)
        new = _unseen(np.concatenate([children, fresh]), bin_counts)
        if len(new) <= self.population:
            return new
        if self.screened == 1:
            return new[rng.permutation(len(new))[: self.population]]
        shares = bin_counts / feasible.num_bins
        return new[draw_promising(shares, values, new / feasible.num_bins, self.population, rng)]


def _unseen(rows: IntArray, seen: IntArray) -> IntArray:
    """Return the distinct rows that are not among those seen."""
    known = {tuple(row) for row in seen.tolist()}
    unique = distinct(rows)
    return unique[[tuple(row) not in known for row in unique.tolist()]]
