"""Searching the widths of a trained supernet: budgets in, results out, everything between in the trial store."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.common.interrupts import Stopped, graceful_stop
from cafenet.common.options import PositiveInt, Range, Rising, Seed, Share, check_arguments, check_options
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_log import Journal
from cafenet.errors import BudgetError
from cafenet.modules.batches import LossFunction
from cafenet.scoring.examples import Data
from cafenet.scoring.metrics import Metric
from cafenet.scoring.scorer import FloatArray, Scorer, ScoringConfig
from cafenet.searching.algorithms.base import Algorithm, Settle
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, parse_budgets
from cafenet.searching.feasible import Feasible
from cafenet.searching.final_pick import pick_best
from cafenet.searching.latency.correction import Meter
from cafenet.searching.latency.estimate import LatencyModel, fit_latency
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.searching.result import FoundWidths
from cafenet.searching.score_board import Contest
from cafenet.searching.store.trials import ScoredWidth, TrialStore
from cafenet.searching.workers import local_workers, shared_storage
from cafenet.space.bins import IntArray
from cafenet.space.importance import constants
from cafenet.supernet.supernet import Supernet


@dataclass(frozen=True)
class SearchConfig:
    """How a search goes about."""

    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Share of the budget that widths proposed by evolution and random search use; trend chooses its own."""
    min_usage: Share = 0.99
    """Share of the budget that the result uses at least, where any width can."""
    num_finalists: PositiveInt = 5
    """Best widths that are filled up and scored exactly at the end; of what trend settles on, one after the other."""
    seed: Seed = 0
    num_workers: Annotated[int, Range(1, 4096)] = 1
    """Processes on this machine, which divide its threads."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)


def search_widths(
    supernet: Supernet,
    train: Data,
    validation: Data,
    budget: str | Sequence[str] = "50%",
    *,
    algorithm: Algorithm | None = None,
    metric: str | Metric = "accuracy",
    loss: str | LossFunction | None = None,
    config: SearchConfig | None = None,
    scoring: ScoringConfig | None = None,
    latency: LatencyConfig | None = None,
    storage: str | Path | None = None,
    study: str = "widths",
    quiet: bool = False,
) -> list[FoundWidths]:
    """The best widths within each budget ("50%", "75%,50%,25%", "150M", "50%+2M params", "12ms").

    loss: what the supernet learned; with "cross_entropy", targets of two dimensions are class probabilities, otherwise
    yes or no for each attribute.
    storage: a journal file or an Optuna storage URL; a second call with the same one continues, and calls at the same
    time on a URL share the work. Without it, scores are kept for this call only.
    """
    check_arguments(
        BudgetError,
        config=(config, SearchConfig | None),
        scoring=(scoring, ScoringConfig | None),
        latency=(latency, LatencyConfig | None),
    )
    scorer = Scorer(supernet, train, validation, metric=metric, loss=loss, config=plain_numbers(scoring))
    settings = plain_numbers(config) or SearchConfig()
    search = WidthSearch(scorer, algorithm or Trend(), settings, latency or LatencyConfig())
    budgets = search.budgets(budget)
    return search.run(budgets, storage, study=study, quiet=quiet)


class WidthSearch:
    """A search ready to run: in this process, or in several."""

    def __init__(
        self,
        scorer: Scorer,
        algorithm: Algorithm,
        config: SearchConfig,
        latency: LatencyConfig | None = None,
        *,
        latency_file: Path | None = None,
    ) -> None:
        """latency_file: where measured latencies are kept, so that a second start goes the way of the first."""
        self._latency_file = latency_file
        self.scorer, self.algorithm, self.config = scorer, algorithm, config
        self.latency = latency or LatencyConfig()
        self._space, self._bins = scorer.supernet.space, scorer.supernet.binned.bins
        self._latency_model: LatencyModel | None = None

    def budgets(self, budget: str | Sequence[str]) -> list[Budget]:
        """Read budgets, and refuse at once those that the smallest subnet does not meet."""
        measure = partial(measure_latency, self._space.extract(), self._example(), self.latency)
        texts = [budget] if isinstance(budget, str) else list(budget)
        budgets = [each for text in texts for each in parse_budgets(text, self._space, full_latency_ms=measure)]
        for each in budgets:
            self._feasible(each)
        return budgets

    def run(
        self, budgets: Sequence[Budget], storage: str | Path | None, *, study: str = "widths", quiet: bool = False
    ) -> list[FoundWidths]:
        """Search each budget; with several workers, helpers score what is proposed, too.

        Ctrl-C and SIGTERM end it after the score that is being made; what the storage holds is not scored again.
        """
        allowed = [self._feasible(budget) for budget in budgets]  # latencies are measured before anything else runs
        with shared_storage(storage, self.config.num_workers) as shared, graceful_stop() as stopped:
            store = self._store(shared, study)
            return [self._search(feasible, store, stopped, quiet) for feasible in allowed]

    def help(self, budget: Budget, storage: str | Path, study: str) -> None:
        """What a helper does: score what the search proposes, until nothing more is."""
        feasible = self._feasible(budget)
        contest = Contest(self.scorer, self._store(storage, study), self._costs, self._name(budget))
        self._drive(feasible, contest)

    def _search(self, feasible: Feasible, store: TrialStore, stopped: list[str], quiet: bool) -> FoundWidths:
        budget = feasible.budget
        progress = _Progress(self.algorithm.num_widths(feasible), f"search {budget.text}", quiet)
        check = partial(_stop, stopped)
        contest = Contest(self.scorer, store, self._costs, self._name(budget), progress, check)
        meter = Meter(feasible, partial(self._measured_ms, check)) if budget.is_measured else None
        try:
            with local_workers(self, budget, store.storage, store.name, self.config.num_workers):
                settle = self._drive(feasible, contest)
            best = pick_best(  # helpers have ended: they would disturb what is measured
                contest,
                feasible,
                np.random.default_rng((self.config.seed, 1)),
                settle=settle,
                meter=meter,
                min_usage=self.config.min_usage,
                num_finalists=self.config.num_finalists,
            )
        finally:
            progress.close()
        return self._result(best, contest, feasible, meter)

    def _drive(self, feasible: Feasible, contest: Contest) -> Settle | None:
        """Score what is proposed until nothing more is; returns how the algorithm settles, if it does."""
        proposals = self.algorithm.proposals(feasible, np.random.default_rng((self.config.seed, 0)))
        try:
            proposal = next(proposals)
            while True:
                proposal = proposals.send(contest.values(proposal))
        except StopIteration as end:
            settled: IntArray | Settle | None = end.value
            return (lambda within: settled) if isinstance(settled, np.ndarray) else settled

    def _store(self, storage: str | Path | None, study: str) -> TrialStore:
        is_shared = True if self.config.num_workers > 1 else None
        return TrialStore(storage, self._bins, self.identity(), name=study, is_shared=is_shared)

    def _name(self, budget: Budget) -> str:
        """What the trials of this search are known by."""
        return f"{self.algorithm!r} {budget.text} seed {self.config.seed} band {self.config.band}"

    def _result(self, best: ScoredWidth, contest: Contest, feasible: Feasible, meter: Meter | None) -> FoundWidths:
        taken = np.array(best.taken, dtype=np.int64)
        subnet = self.scorer.subnet(taken, best.score.candidate)
        channels = {
            group.name: np.flatnonzero(np.isin(group.unit_of_channel, units)).tolist()
            for group, units in zip(self._space.groups, subnet.units, strict=True)
        }
        budget = feasible.budget
        measured = {} if meter is None else {"latency_ms": meter.measured_ms[best.taken]}
        return FoundWidths(
            budget=budget.text,
            algorithm=self.algorithm.name,
            widths={name: len(kept) for name, kept in channels.items()},
            channels=channels,
            score=best.score.value,
            metric=self.scorer.metric_name,
            costs={**best.costs, **measured},
            usage=_usage(feasible, taken, measured),
            num_scored=len(contest.seen),
            num_dropped=sum(not each.score.is_complete for each in contest.seen.values()),
            seed=self.config.seed,
        )

    def _feasible(self, budget: Budget) -> Feasible:
        costs: dict[str, Callable[[IntArray], npt.NDArray[Any]]] = {
            "flops": lambda widths: self._space.flops(widths),
            "params": lambda widths: self._space.params(widths),
            "latency_ms": self._estimated_ms,
        }
        return Feasible(self._bins, costs, budget, self.config.band)

    def _estimated_ms(self, widths: IntArray) -> FloatArray:
        if self._latency_model is None:
            self._latency_model = fit_latency(
                self._space, self._bins, self._example(), self.latency, cache=self._latency_file, anywhere=True
            )
        return self._latency_model.predict(widths)

    def _measured_ms(self, check: Callable[[], None], taken: IntArray) -> float:
        check()
        slim = self._space.extract(self._bins.widths(taken).tolist())
        return measure_latency(slim, self._example(), self.latency)

    def _example(self) -> object:
        return next(self.scorer.validation.batches(0, 1, 1))[0]

    def _costs(self, taken: IntArray) -> dict[str, float]:
        widths = self._bins.widths(taken[None])
        return {"flops": float(self._space.flops(widths)[0]), "params": float(self._space.params(widths)[0])}

    def identity(self) -> dict[str, object]:
        """What scores depend on: a study of anything else is refused."""
        return {
            **supernet_identity(self.scorer.supernet),
            "metric": self.scorer.scored_by,
            "scoring": {name: value for name, value in asdict(self.scorer.config).items() if name != "max_examples"},
            "validation": self.scorer.validation.digest(),
            "calibration": self.scorer.calibration.digest(),
        }


def supernet_identity(supernet: Supernet) -> dict[str, object]:
    """What tells one trained supernet from another."""
    return {
        "bins": {group.name: [group.channels, group.first, group.size] for group in supernet.binned.bins.groups},
        "pattern": repr(supernet.pattern),
        "weights": _digest({**supernet.model.state_dict(), **constants(supernet.space, supernet.model)}),
    }


def _usage(feasible: Feasible, taken: IntArray, measured: Mapping[str, float]) -> float:
    """The share of the budget that a width uses, by what was measured where something was."""
    widths = feasible.bins.widths(taken[None])
    return max(
        (measured[cap.cost] if cap.cost in measured else float(feasible.costs[cap.cost](widths)[0])) / cap.limit
        for cap in feasible.budget.caps
    )


def _stop(stopped: list[str]) -> None:
    """End the search where a signal has come."""
    if stopped:
        raise Stopped(f"stopped by {stopped[0]}; scores are kept, start again to continue", stopped[0])


class _Progress:
    """The journal's bar, with the best score so far and the rate; the final scores come after the last step."""

    def __init__(self, total: int, title: str, quiet: bool) -> None:
        self._journal, self._total = Journal(None, total, title=title, quiet=quiet), total
        self._journal.start(0)
        self._number, self._best, self._start = 0, -math.inf, time.monotonic()

    def __call__(self, scored: ScoredWidth) -> None:
        self._number += 1
        if scored.score.is_complete:
            self._best = max(self._best, scored.score.value)
        self._journal.show(min(self._number, self._total - 1), f"{scored.label}, {self._note()}")

    def close(self) -> None:
        """Show the last state and put the terminal back in order."""
        self._journal.show(self._total, self._note())
        self._journal.close()

    def _note(self) -> str:
        rate = 60 * self._number / max(time.monotonic() - self._start, 1e-9)
        return f"best {self._best:.4g}, {rate:.0f} widths/min"


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
