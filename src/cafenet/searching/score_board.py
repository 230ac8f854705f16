"""The scores of one search: known scores come from the trial store, and new ones are shared with other workers."""

import heapq
import itertools
import random
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cafenet.errors import CafeNetWarning
from cafenet.scoring.scorer import FloatArray, Score
from cafenet.searching.algorithms.base import Proposal
from cafenet.searching.store.scored_width import ScoredWidth, key_of
from cafenet.space.bins import IntArray

if TYPE_CHECKING:
    from cafenet.searching.store.trials import TrialStore

_SHORTEST_POLL, _LONGEST_POLL = 0.02, 0.32
_ENOUGH_TO_JUDGE = 10


class WidthScorer(Protocol):
    """An object that scores width vectors: `cafenet.scoring.scorer.Scorer`, or a table in a benchmark."""

    @property
    def chance(self) -> float | None:
        """The score of a model that has learned nothing, or None if that is unknown."""
        ...

    def score(self, bin_counts: IntArray, bar: Score | None = None, *, exact: bool = False) -> Score:
        """Score one width vector.

        Args:
            bin_counts: Bins per group.
            bar: Score to beat; a vector that is clearly below it may be dropped early.
            exact: If True, every candidate is scored on all examples and nothing is dropped.

        Returns:
            The score.
        """
        ...


class Contest:
    """The scores that one search has seen: every width vector that it proposed, once."""

    def __init__(
        self,
        scorer: WidthScorer,
        store: "TrialStore",
        costs: Callable[[IntArray], Mapping[str, float]],
        search: str,
        on_scored: Callable[[ScoredWidth], None] = lambda scored: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an empty contest.

        Args:
            scorer: Scores width vectors that the store does not know.
            store: The trials; new scores are written to it.
            costs: Returns the costs by name of one width vector.
            search: Name by which the trials of this search are known in the store.
            on_scored: Called with every score, for example to show progress.
            check: Called after every score and while waiting for other workers. An exception that it raises ends the
                search.
        """
        self._scorer, self._store, self._costs, self._search = scorer, store, costs, search
        self._on_scored, self._check = on_scored, check
        self.seen: dict[tuple[int, ...], ScoredWidth] = {}
        """Scores of all proposed width vectors, by their bins per group."""
        self.num_scored = 0
        """Number of width vectors that were scored now, not found in the store."""
        self._is_warned = scorer.chance is None
        self._poll_seconds = _SHORTEST_POLL
        self._store.on_wait = check

    def values(self, proposal: Proposal) -> FloatArray:
        """Score the rows of a proposal.

        Args:
            proposal: The width vectors, and how many of the best matter.

        Returns:
            One score per row; rows that were dropped early have an estimate.
        """
        rivals = [] if proposal.is_own_contest else [each for each in self.seen.values() if each.score.is_complete]
        round_ = _Round(proposal, rivals)
        while round_.missing:
            before = len(round_.found)
            for number in self._chosen(round_):
                scored = self._score(round_.row(number), round_.bar(), proposal.label)
                if scored is not None:
                    self._note(number, scored, round_)
            if len(round_.found) == before:  # other workers are scoring the rest
                self._wait()
        self._warn_of_chance()
        return np.array([round_.found[number].score.value for number in range(len(proposal.bin_counts))])

    def exact(self, rows: Sequence[IntArray]) -> list[ScoredWidth]:
        """Score width vectors exactly: every candidate on all examples.

        Args:
            rows: Bins per group of each vector.

        Returns:
            The scores in the order of the rows.
        """
        found: dict[int, ScoredWidth] = {}
        while len(found) < len(rows):
            before = len(found)
            for number, row in enumerate(rows):
                if number in found:
                    continue
                scored = self._known_exactly(row) or self._scored_now(row, None, "final", exact=True)
                if scored is not None:
                    found[number] = scored
                    self._on_scored(scored)
                    self._check()
            if len(found) == before:
                self._wait()
        return [found[number] for number in range(len(rows))]

    def _chosen(self, round_: "_Round") -> Iterator[int]:
        """Yield rows to score: in their order if this is the only worker, else free ones near the first, and at last
        those that others have claimed, whose claims may have become stale."""
        if not self._store.is_shared:
            yield from list(round_.missing)
            return
        self._take_in(round_)
        while (number := round_.free_row(self._store.claimed())) is not None:
            yield number
            self._take_in(round_)
        for number in list(round_.missing):
            if number in round_.missing:
                yield number
                self._take_in(round_)

    def _take_in(self, round_: "_Round") -> None:
        """Take in what other workers have scored of a proposal meanwhile; it raises the bar for this worker, too."""
        for number in round_.arrived(self._store):
            own = (each for each in self._store.get(round_.row(number)) if each.search == self._search)
            scored = next((each for each in own if not each.is_exact), None)
            if scored is not None:
                self._note(number, scored, round_)

    def _note(self, number: int, scored: ScoredWidth, round_: "_Round") -> None:
        """Record a score of the proposal's row `number`."""
        self.seen[scored.bin_counts] = scored
        round_.note(number, scored)
        self._poll_seconds = _SHORTEST_POLL
        self._on_scored(scored)
        self._check()

    def _wait(self) -> None:
        """Wait a moment, longer from time to time, and read what other workers have written."""
        self._check()
        time.sleep(self._poll_seconds)
        self._poll_seconds = min(2 * self._poll_seconds, _LONGEST_POLL)
        self._store.refresh()

    def _score(self, bin_counts: IntArray, bar: Score | None, label: str) -> ScoredWidth | None:
        """Return a score from the store or a new one, or None while another worker scores the same width."""
        return self._known(bin_counts, bar) or self._scored_now(bin_counts, bar, label, exact=False)

    def _known(self, bin_counts: IntArray, bar: Score | None) -> ScoredWidth | None:
        """Return a stored score that can be used, or None.

        The search's own score comes first, so that a resumed search repeats itself; then the oldest score of another
        search. A width that another search dropped counts only if this search would drop it, too.
        """
        known = self._store.get(bin_counts)
        for each in known:
            if each.search == self._search and not each.is_exact:
                return each
        for each in known:
            if each.score.is_complete or (bar is not None and each.score.value + each.score.standard_error < bar.value):
                return each
        return None

    def _known_exactly(self, bin_counts: IntArray) -> ScoredWidth | None:
        """Return a stored score of all candidates on all examples, or None.

        A complete score of a width with only one candidate is such a score, because nothing was raced.
        """
        for each in self._store.get(bin_counts):
            if each.is_exact or (each.score.is_complete and each.score.num_candidates == 1):
                return each
        return None

    def _scored_now(self, bin_counts: IntArray, bar: Score | None, label: str, *, exact: bool) -> ScoredWidth | None:
        """Score a width now and store the score; return None if another worker has claimed it."""
        claim = None
        if self._store.is_shared:
            claim = self._store.claim(bin_counts)
            if claim is None:
                return None
            known = self._known_exactly(bin_counts) if exact else self._known(bin_counts, bar)
            if known is not None:  # another worker finished this width just before the claim
                self._store.give_up(claim)
                return known
        start = time.perf_counter()
        try:
            score = self._scorer.score(bin_counts, bar, exact=exact)
        except BaseException:
            if claim is not None:
                self._store.give_up(claim)
            raise
        seconds = time.perf_counter() - start
        self.num_scored += 1
        scored = ScoredWidth(key_of(bin_counts), score, self._costs(bin_counts), self._search, label, seconds, exact)
        return self._store.add(scored, claim)

    def _warn_of_chance(self) -> None:
        """Warn once if the best score is no better than always answering the most frequent label."""
        complete = [each.score for each in self.seen.values() if each.score.is_complete]
        chance = self._scorer.chance
        if self._is_warned or chance is None or len(complete) < _ENOUGH_TO_JUDGE:
            return
        self._is_warned = True
        noise = 2 * (chance * (1 - chance) / complete[0].num_examples) ** 0.5
        best = max(score.value for score in complete)
        if best <= chance + noise:
            words = (
                f"scores look like chance: the best of {len(complete)} widths reaches {best:.1%}, and always answering "
                f"the most frequent label {chance:.1%}; train the supernet longer, or check that training and "
                "validation data are prepared alike"
            )
            self._store.warn(words)
            warnings.warn(words, CafeNetWarning, stacklevel=2)


class _Round:
    """One proposal while it is scored: the rows that have a score, and the best of them."""

    def __init__(self, proposal: Proposal, rivals: Sequence[ScoredWidth]) -> None:
        self._proposal = proposal
        self.found: dict[int, ScoredWidth] = {}
        self.missing = dict.fromkeys(range(len(proposal.bin_counts)))
        """Numbers of the rows without a score, in their order."""
        self._best: list[tuple[float, int, Score]] = []
        """The best scores, as many as matter, the worst of them first."""
        self._rows: dict[tuple[int, ...], list[int]] | None = None
        self._num_arrived = 0
        self._num_rivals = 0
        self._random = random.Random()
        for each in rivals:
            self._compete(each)

    def row(self, number: int) -> IntArray:
        """Return the width vector of a row."""
        row: IntArray = self._proposal.bin_counts[number]
        return row

    def bar(self) -> Score | None:
        """Return the score that a width must reach to be among the best, or None if there are too few rivals."""
        return self._best[0][2] if len(self._best) == self._proposal.num_kept else None

    def note(self, number: int, scored: ScoredWidth) -> None:
        """Record the score of a row."""
        self.found[number] = scored
        self.missing.pop(number, None)
        if scored.score.is_complete:
            self._compete(scored)

    def free_row(self, claimed: Collection[tuple[int, ...]]) -> int | None:
        """Choose a missing row that nobody has claimed, near the first one, so that workers do not all want the same;
        return None if there is none."""
        free = (number for number in self.missing if key_of(self.row(number)) not in claimed)
        choices = list(itertools.islice(free, len(claimed) + 1))
        return self._random.choice(choices) if choices else None

    def arrived(self, store: "TrialStore") -> Iterator[int]:
        """Yield the missing rows whose width vectors have scores that were read since the last call."""
        if self._rows is None:
            self._rows = {}
            for number, row in enumerate(self._proposal.bin_counts):
                self._rows.setdefault(key_of(row), []).append(number)
        keys = store.arrivals(self._num_arrived)
        self._num_arrived += len(keys)
        for key in keys:
            yield from (number for number in self._rows.get(key, ()) if number not in self.found)

    def _compete(self, scored: ScoredWidth) -> None:
        """Keep a score if it is among the best."""
        self._num_rivals += 1
        entry = (scored.score.value, -self._num_rivals, scored.score)  # of equal scores the older one counts more
        if len(self._best) < self._proposal.num_kept:
            heapq.heappush(self._best, entry)
        elif entry > self._best[0]:
            heapq.heapreplace(self._best, entry)
