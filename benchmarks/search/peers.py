"""Optuna's samplers on the table, with the FLOPs budget as a constraint.

FLOPs are known without an evaluation. So a suggestion above the budget is told as infeasible and does not count, nor
does a width that was suggested before (its value is told again). Both count in `all_suggestions`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import optuna

from benchmarks.search.table import CHANNELS, Table, Track

MOST_SUGGESTIONS = 10
"""Suggestions for each evaluation, at most, before a run is ended."""

SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "Optuna NSGA-II": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "Optuna TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
}
"""Samplers with their default settings; TPE is the multivariate one since Optuna 5."""


@dataclass(frozen=True, eq=False)
class PeerRun:
    """One run, counted in two ways."""

    distinct: Track
    """Evaluations of distinct widths within the budget."""
    all_suggestions: Track


def search_peer(name: str, table: Table, mode: str, percent: int, seed: int, most: int) -> PeerRun:
    """Ask and tell until `most` distinct fitting widths were evaluated, or too many were suggested."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    limit = percent / 100 * float(table.flops[-1])
    run = PeerRun(Track(table, mode, limit), Track(table, mode, limit))
    study = optuna.create_study(direction="maximize", sampler=SAMPLERS[name](seed))
    known: dict[int, float] = {}
    while run.distinct.num_evaluations < most and run.all_suggestions.num_evaluations < MOST_SUGGESTIONS * most:
        trial = study.ask()
        bin_counts = [trial.suggest_int(f"group{group}", 1, 4) for group in range(len(CHANNELS))]
        number = int(table.number(np.array(bin_counts)))
        trial.set_constraint("flops", float(table.flops[number]) / limit - 1)
        if table.flops[number] > limit:
            run.all_suggestions.skip()
            study.tell(trial, 0.0)  # neither sampler reads the value of an infeasible trial
            continue
        if number not in known:
            known[number] = run.distinct.add(number)
        run.all_suggestions.add(number)
        study.tell(trial, known[number])
    return run
