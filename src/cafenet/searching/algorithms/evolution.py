"""Evolutionary search (CafeNet-E of the paper): children of the best widths so far, screened by a cheap model."""

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
    """Population 40 and 50 iterations, as in the paper: 2,000 widths.

    Each iteration makes `screened` children for every one that is scored, and scores those that a regression on all
    scores so far finds promising; `screened=1` is the plain algorithm, which picks among them by chance.
    """

    population: PositiveInt = 40
    iterations: PositiveInt = 50
    num_parents: PositiveInt = 10
    mutation_rate: PositiveShare = 0.1
    screened: PositiveInt = 10

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """What results are labelled with."""
        return "evolution"

    def num_widths(self, feasible: Feasible) -> int:
        """Population times iterations, or all that there are."""
        return min(self.population * self.iterations, feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """A first population over the whole space under the budget, then generations of children."""
        taken = distinct(feasible.sample(self.population, rng))
        values = np.empty(0)
        num_old = 0
        for iteration in range(1, self.iterations + 1):
            label = f"iteration {iteration}"
            values = np.append(values, (yield Proposal(taken[num_old:], self.num_parents, label=label)))
            num_old = len(taken)
            children = self._children(taken, values, feasible, rng)
            if len(children) == 0:
                return
            taken = np.concatenate([taken, children])

    def _children(self, taken: IntArray, values: FloatArray, feasible: Feasible, rng: np.random.Generator) -> IntArray:
        """New widths: half of them crossed over and then mutated, half mutated only."""
        parents = taken[np.argsort(-values, kind="stable")[: self.num_parents]]
        num_bred = self.population * max(self.screened, 2)  # some are known already
        mothers, fathers = (parents[rng.integers(len(parents), size=num_bred)] for _ in range(2))
        is_crossed = rng.random(num_bred) < 0.5
        children = mothers.copy()
        if is_crossed.any():
            children[is_crossed] = feasible.crossover(mothers[is_crossed], fathers[is_crossed], rng)
        is_mutated = ~is_crossed | (rng.random(num_bred) < 0.5)
        children[is_mutated] = feasible.mutate(children[is_mutated], rng, self.mutation_rate)
        fresh = feasible.sample(max(self.population // 4, 1), rng)
        new = _unseen(np.concatenate([children, fresh]), taken)
        if len(new) <= self.population:
            return new
        if self.screened == 1:
            return new[rng.permutation(len(new))[: self.population]]
        shares = taken / feasible.num_bins
        return new[draw_promising(shares, values, new / feasible.num_bins, self.population, rng)]


def _unseen(rows: IntArray, seen: IntArray) -> IntArray:
    """The distinct rows that are not among those seen."""
    known = {tuple(row) for row in seen.tolist()}
    unique = distinct(rows)
    return unique[[tuple(row) not in known for row in unique.tolist()]]
