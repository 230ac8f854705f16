"""The search for widths of a trained supernet: budgets in, results out, and every score in the trial store."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from cafenet.common.interrupts import Stopped, graceful_stop
from cafenet.common.options import NotEmpty, check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.errors import BudgetError
from cafenet.modules.batches import LossFunction
from cafenet.scoring.examples import Data
from cafenet.scoring.metrics import Metric
from cafenet.scoring.scorer import FloatArray, Scorer, ScoringConfig
from cafenet.searching.algorithms.base import Algorithm, Settle
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, parse_budgets
from cafenet.searching.feasible import Feasible
from cafenet.searching.file_size import FileSizes
from cafenet.searching.final_pick import pick_best
from cafenet.searching.identity import supernet_identity
from cafenet.searching.latency.correction import CHECKS, Meter, Meters
from cafenet.searching.latency.estimate import LatencyModel, fit_latency
from cafenet.searching.latency.measure import KnownLatency, LatencyConfig, Reference, measure_latency
from cafenet.searching.result import FoundWidths
from cafenet.searching.score_board import Contest
from cafenet.searching.search_config import SearchConfig
from cafenet.searching.search_progress import SearchProgress
from cafenet.searching.store.scored_width import ScoredWidth
from cafenet.searching.workers import local_workers, shared_storage
from cafenet.space.bins import IntArray
from cafenet.supernet.supernet import Supernet

if TYPE_CHECKING:
    from cafenet.searching.store.trials import TrialStore


def search_widths(
    supernet: Supernet,
    train_data: Data,
    val_data: Data,
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
    """Search the best widths of a trained supernet within each budget.

    Args:
        supernet: The trained supernet.
        train_data: Training data, from which examples for the recalibration of batch norm are taken.
        val_data: Validation data that widths are scored on.
        budget: One budget ("50%", "150M", "50%+2M params", "12ms"), several separated by commas ("75%,50%,25%"), or a
            sequence of such texts.
        algorithm: The search algorithm, by default `Trend()`.
        metric: "accuracy", "negative_loss", "perplexity", "token_accuracy" or a function of (output, target); higher is
            better, and the score of perplexity is minus its logarithm.
        loss: The loss that the supernet was trained with. With "cross_entropy", targets of two dimensions are class
            probabilities; otherwise they are yes or no for each attribute.
        config: Options of the search.
        scoring: Options of scoring.
        latency: Conditions under which latency is measured, for budgets in milliseconds.
        storage: A journal file or an Optuna storage URL. A second call with the same storage continues, and
            simultaneous calls with the same URL share the work. Without a storage, scores are kept for this call only.
        study: Name of the Optuna study in the storage.
        quiet: If True, no progress is shown.

    Returns:
        One result per budget, in their order.

    Raises:
        BudgetError: If a budget cannot be read or met.
        ScoringError: If the data or the metric cannot be used.
        StoreError: If the storage cannot be used, or its study belongs to another supernet or other data.

    Example:
        >>> import cafenet, torch
        >>> from torch import nn
        >>> from cafenet.space.bins import uniform_bins
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        >>> data = torch.utils.data.TensorDataset(torch.randn(32, 3, 8, 8), torch.arange(32) % 2)
        >>> space = cafenet.trace(model, torch.randn(2, 3, 8, 8))
        >>> supernet = cafenet.Supernet(model, space, uniform_bins(space, 8))
        >>> [result] = cafenet.search_widths(
        ...     supernet, data, data, "50%", algorithm=cafenet.RandomSearch(samples=4), quiet=True
        ... )
        >>> result.costs["flops"] <= 0.5 * space.flops()
        True
    """
    check_arguments(
        BudgetError,
        supernet=(supernet, Supernet),
        budget=(budget, str | Annotated[list[str], NotEmpty()]),
        config=(config, SearchConfig | None),
        scoring=(scoring, ScoringConfig | None),
        latency=(latency, LatencyConfig | None),
    )
    scorer = Scorer(supernet, train_data, val_data, metric=metric, loss=loss, config=plain_numbers(scoring))
    settings = plain_numbers(config) or SearchConfig()
    search = WidthSearch(scorer, algorithm or Trend(), settings, latency or LatencyConfig())
    budgets = search.budgets(budget)
    return search.run(budgets, storage, study=study, quiet=quiet)


class WidthSearch:
    """A search that is ready to run, in one process or in several."""

    def __init__(
        self,
        scorer: Scorer,
        algorithm: Algorithm,
        config: SearchConfig,
        latency: LatencyConfig | None = None,
        *,
        latency_file: Path | None = None,
        full: KnownLatency | None = None,
    ) -> None:
        """Prepare a search.

        Args:
            scorer: Scores width vectors of the supernet.
            algorithm: The search algorithm.
            config: Options of the search.
            latency: Conditions under which latency is measured.
            latency_file: File that keeps the measured latencies, so that a second start makes the same choices as the
                first.
            full: The model that latency budgets are a share of, with the latency that they were made from. All
                measurements are related to it, so that it does not matter when they are made.
        """
        self._latency_file, self._full = latency_file, full
        self.scorer, self.algorithm, self.config = scorer, algorithm, config
        self.latency = latency or LatencyConfig()
        self._space, self._bins = scorer.supernet.space, scorer.supernet.binned.bins
        self._latency_model: LatencyModel | None = None
        self._files = FileSizes(self._space, self._bins, self._example(), self.latency)
        self._quiet = True

    def budgets(self, budget: str | Sequence[str]) -> list[Budget]:
        """Read budgets and refuse those that the smallest subnet exceeds.

        Args:
            budget: One text, or several; each may hold several budgets separated by commas.

        Returns:
            All budgets, in their order.

        Raises:
            BudgetError: If a budget cannot be read or met.
        """
        texts = [budget] if isinstance(budget, str) else list(budget)
        full: dict[str, Callable[[], float]] = {
            "full_latency_ms": self._full_ms,
            "full_file_bytes": lambda: float(self._files.full),
        }
        budgets = [each for text in texts for each in parse_budgets(text, self._space, **full)]
        for each in budgets:
            self._feasible(each)
        return budgets

    def run(
        self, budgets: Sequence[Budget], storage: str | Path | None, *, study: str = "widths", quiet: bool = False
    ) -> list[FoundWidths]:
        """Search each budget. With several workers, helper processes score proposed widths, too.

        Ctrl-C and SIGTERM end the search after the score in progress; scores in the storage are not computed again.

        Args:
            budgets: The budgets, as `budgets` reads them.
            storage: A journal file, an Optuna storage URL, or None to keep scores in memory.
            study: Name of the Optuna study in the storage.
            quiet: If True, no progress is shown.

        Returns:
            One result per budget, in their order.

        Raises:
            BudgetError: If no scored width vector meets a budget.
            StoreError: If the storage cannot be used, or its study belongs to another supernet or other data.
        """
        self._quiet = quiet
        allowed = [self._feasible(budget) for budget in budgets]  # latencies are measured before anything else runs
        with shared_storage(storage, self.config.search_workers) as shared, graceful_stop() as stopped:
            store = self._store(shared, study)
            return [self._search(feasible, store, stopped, quiet) for feasible in allowed]

    def help(
        self, budget: Budget, storage: str | Path, study: str, check: Callable[[], None] = lambda: None
    ) -> tuple[int, int]:
        """Score proposed widths in a helper process until the algorithm proposes no more.

        Args:
            budget: The budget that is searched.
            storage: The storage that the processes share.
            study: Name of the Optuna study in the storage.
            check: Called after every score; an exception that it raises ends the work.

        Returns:
            The number of widths that this process has scored, and that of all widths of the search.
        """
        feasible = self._feasible(budget)
        contest = Contest(self.scorer, self._store(storage, study), self._costs, self._name(budget), check=check)
        self._drive(feasible, contest)
        return contest.num_scored, len(contest.seen)

    def copy_scores(self, storage: str, study: str, journal: Path) -> None:
        """Copy the scores of a shared study into a journal, from which reports are made and later starts continue.

        Args:
            storage: The storage that was shared.
            study: Name of the study in it.
            journal: The journal file; scores that it holds stay as they are.
        """
        there, here = self._store(storage, study), self._store(journal, "widths")
        known = {_sign(each) for each in here.all()}
        for scored in there.all():
            if _sign(scored) not in known:
                here.add(scored)

    def _search(self, feasible: Feasible, store: "TrialStore", stopped: list[str], quiet: bool) -> FoundWidths:
        budget = feasible.budget
        progress = SearchProgress(self.algorithm.num_widths(feasible), f"search {budget.text}", quiet)
        check = partial(_stop, stopped)
        contest = Contest(self.scorer, store, self._costs, self._name(budget), progress, check)
        reference = self._reference(feasible)
        meter = self._meters(feasible, partial(self._measured_ms, check, reference))
        try:
            with local_workers(self, budget, store.storage, store.name, self.config.search_workers):
                settle = self._drive(feasible, contest)
            best = pick_best(  # helpers have ended, because they would disturb latency measurements
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
            if reference is not None:
                reference.close()
        return self._result(best, contest, feasible, meter)

    def _drive(self, feasible: Feasible, contest: Contest) -> Settle | None:
        """Score proposals until the algorithm ends; return how it settles on a result, or None if the best score
        decides."""
        proposals = self.algorithm.proposals(feasible, np.random.default_rng((self.config.seed, 0)))
        try:
            proposal = next(proposals)
            while True:
                proposal = proposals.send(contest.values(proposal))
        except StopIteration as end:
            settled: IntArray | Settle | None = end.value
            return (lambda within: settled) if isinstance(settled, np.ndarray) else settled

    def _store(self, storage: str | Path | None, study: str) -> "TrialStore":
        from cafenet.searching.store.trials import TrialStore  # optuna takes long to import

        is_shared = True if self.config.search_workers > 1 else None
        return TrialStore(storage, self._bins, self.identity(), name=study, is_shared=is_shared)

    def _name(self, budget: Budget) -> str:
        """Return the name by which the trials of this search are known in the store."""
        return f"{self.algorithm!r} {budget.text} seed {self.config.seed} band {self.config.band}"

    def _meters(self, feasible: Feasible, latency_ms: Callable[[IntArray], float]) -> Meters | None:
        """Return what judges picked widths, or None if the budget needs no measurement; files come first, because they
        are written once."""
        if not feasible.budget.is_measured:
            return None
        capped = {cap.cost for cap in feasible.budget.caps}
        meters = []
        if "file_bytes" in capped:
            meters.append(Meter(feasible, lambda row: float(self._files.written(row)), cost="file_bytes", checks=0))
        if "latency_ms" in capped:
            meters.append(Meter(feasible, latency_ms, cost="latency_ms", checks=CHECKS))
        return Meters(meters)

    def _result(self, best: ScoredWidth, contest: Contest, feasible: Feasible, meter: Meters | None) -> FoundWidths:
        """Describe the chosen width vector as a result."""
        bin_counts = np.array(best.bin_counts, dtype=np.int64)
        subnet = self.scorer.subnet(bin_counts, best.score.candidate)
        channels = {
            group.name: np.flatnonzero(np.isin(group.unit_of_channel, units)).tolist()
            for group, units in zip(self._space.groups, subnet.units, strict=True)
        }
        budget = feasible.budget
        measured = {} if meter is None else meter.costs(best.bin_counts)
        return FoundWidths(
            budget=budget.text,
            algorithm=self.algorithm.name,
            widths={name: len(kept) for name, kept in channels.items()},
            channels=channels,
            score=best.score.value,
            metric=self.scorer.metric_name,
            costs={**best.costs, **measured},
            usage=feasible.measured_usage(bin_counts, measured),
            num_scored=len(contest.seen),
            num_dropped=sum(not each.score.is_complete for each in contest.seen.values()),
            seed=self.config.seed,
        )

    def _feasible(self, budget: Budget) -> Feasible:
        """Return the width vectors that meet a budget."""
        costs: dict[str, Callable[[IntArray], npt.NDArray[Any]]] = {
            "flops": lambda widths: self._space.flops(widths),
            "params": lambda widths: self._space.params(widths),
            "latency_ms": self._estimated_ms,
            "file_bytes": self._files.predict,
        }
        return Feasible(self._bins, costs, budget, self.config.band)

    def _full_ms(self) -> float:
        """Return the latency of the full model, which is measured once."""
        if self._full is None:
            model = self._space.extract()
            self._full = KnownLatency(model, measure_latency(model, self._example(), self.latency))
        return self._full.ms

    def _estimated_ms(self, widths: IntArray) -> FloatArray:
        """Estimate latencies; the first call measures some subnets and fits the estimate."""
        if self._latency_model is None:
            self._latency_model = fit_latency(
                self._space,
                self._bins,
                self._example(),
                self.latency,
                cache=self._latency_file,
                anywhere=True,
                quiet=self._quiet,
                full=self._full,
            )
        return self._latency_model.predict(widths)

    def _measured_ms(self, check: Callable[[], None], reference: Reference | None, bin_counts: IntArray) -> float:
        """Extract a slim model and measure its latency anew, whatever the cache holds."""
        check()
        slim = self._space.extract(self._bins.widths(bin_counts).tolist())
        return measure_latency(slim, self._example(), replace(self.latency, cache=None), reference)

    def _reference(self, feasible: Feasible) -> Reference | None:
        """Return the full model as it was measured for the budget or else the estimate, or None if nothing is measured
        here."""
        if not feasible.budget.is_measured or self.latency.is_elsewhere or self._latency_model is None:
            return None
        full = self._full or KnownLatency(self._space.extract(), self._latency_model.full_ms)
        return Reference(full.model, self._example(), self.latency, full.ms)

    def _example(self) -> object:
        """Return the inputs of one validation example."""
        return next(self.scorer.validation.batches(0, 1, 1))[0]

    def _costs(self, bin_counts: IntArray) -> dict[str, float]:
        """Return the FLOPs and parameters of one width vector."""
        widths = self._bins.widths(bin_counts[None])
        return {"flops": float(self._space.flops(widths)[0]), "params": float(self._space.params(widths)[0])}

    def identity(self) -> dict[str, object]:
        """Return everything that scores depend on; a study with another identity is refused.

        Returns:
            Plain values by name.
        """
        return {
            **supernet_identity(self.scorer.supernet),
            "metric": self.scorer.scored_by,
            "scoring": {name: value for name, value in asdict(self.scorer.config).items() if name != "max_examples"},
            "validation": self.scorer.validation.digest(),
            "calibration": self.scorer.calibration.digest(),
        }


def _sign(scored: ScoredWidth) -> tuple[object, ...]:
    """Return what tells one score of a study from the others."""
    return scored.bin_counts, scored.search, scored.is_exact


def _stop(stopped: list[str]) -> None:
    """Raise `Stopped` if a signal has arrived."""
    if stopped:
        raise Stopped(f"stopped by {stopped[0]}; scores are kept, start again to continue", stopped[0])
