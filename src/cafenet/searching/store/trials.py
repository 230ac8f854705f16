"""The trial store: every scored width is a trial of an Optuna study, so that no width is scored twice.

A finished trial is written in one operation. If several workers share a study, a worker first claims a width with a
running trial, and its score is written only while the claim is its own. Any worker that meets the claim of a dead
worker gives it up (see `claims`).
"""

import base64
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import TrialState

from cafenet.errors import StoreError
from cafenet.scoring.scorer import Score
from cafenet.searching.store import claims
from cafenet.searching.store.claims import BEATS_PER_STALENESS, STALE_SECONDS, ClaimWatch
from cafenet.searching.store.journal_file import has_trials, open_storage, without_password
from cafenet.searching.store.optuna_trials import OptunaTrials
from cafenet.searching.store.scored_width import Key, ScoredWidth, key_of
from cafenet.searching.store.stored_trial import NewTrial, StoredTrial, Trials
from cafenet.space.bins import Bins, IntArray

WARNING = "warning"
"""Key of the warning about a study's scores."""


class TrialStore:
    """The study of one supernet in a storage."""

    def __init__(
        self,
        storage: str | Path | None,
        bins: Bins,
        identity: Mapping[str, Any],
        *,
        name: str = "widths",
        is_shared: bool | None = None,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        """Open the study, or create it.

        Args:
            storage: A journal file, an Optuna storage URL, or None to keep trials in memory.
            bins: The bins of each group.
            identity: Everything that scores depend on, as plain values by name.
            name: Name of the study.
            is_shared: If True, widths are claimed before they are scored. By default this is so for URLs.
            stale_seconds: Seconds, by the clock of whoever waits, after which the claim of a worker on another machine
                is given up if the worker does not say that it lives.

        Raises:
            StoreError: If the storage cannot be opened, or the study has another identity.
        """
        self.bins, self.name, self.storage = bins, name, storage
        self.is_shared = "://" in str(storage) if is_shared is None else is_shared
        self._distributions: dict[str, BaseDistribution] = {
            group.name: IntDistribution(group.first, group.channels, step=group.size) for group in bins.groups
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._storage = optuna.storages.InMemoryStorage() if storage is None else open_storage(storage)
        study = optuna.create_study(storage=self._storage, study_name=name, direction="maximize", load_if_exists=True)
        self._study_id = study._study_id
        self._check_identity(dict(identity), str(storage))
        self.on_wait: Callable[[], None] = lambda: None
        """Called while a database is out of reach; an exception that it raises ends the waiting."""
        self._repeat: Callable[[Callable[[], None]], None] = lambda work: work()
        self._trials = self._trials_of_study()
        self._watch = ClaimWatch(stale_seconds)
        self._beats = _Beats(self._trials, stale_seconds / BEATS_PER_STALENESS)
        self._known: dict[Key, list[ScoredWidth]] = {}
        self._running: dict[int, StoredTrial] = {}
        self._arrived: list[Key] = []
        self.refresh()

    def _trials_of_study(self) -> Trials:
        """Return the trials: those of a database by statements of our own, all others by Optuna."""
        if not isinstance(self._storage, _CachedStorage):
            return OptunaTrials(self._storage, self._study_id, self._distributions)
        from cafenet.searching.store.database_trials import DatabaseTrials  # SQLAlchemy takes long to import
        from cafenet.searching.store.outages import Patient

        database = Patient(self._storage._backend.engine, without_password(str(self.storage)))
        database.on_wait = lambda: self.on_wait()
        self._repeat = database.repeat
        return DatabaseTrials(database, self._study_id, self._distributions)

    def refresh(self) -> None:
        """Read what other workers have written meanwhile."""
        self._take_in(self._trials.changes())

    def arrivals(self, since: int) -> Sequence[Key]:
        """Return the width vectors of the scores that were read, in the order in which they were.

        Args:
            since: Number of scores to leave out, as many as were read before.

        Returns:
            The width vectors; one that was scored several times is there several times.
        """
        return self._arrived[since:]

    def claimed(self) -> set[Key]:
        """Return the width vectors that are claimed, as far as was read.

        Returns:
            The width vectors.
        """
        return {self._key(trial) for trial in self._running.values()}

    def get(self, bin_counts: IntArray) -> list[ScoredWidth]:
        """Return the known scores of a width vector.

        Args:
            bin_counts: Bins per group.

        Returns:
            The scores, oldest first.
        """
        return self._known.get(key_of(bin_counts), [])

    def all(self) -> list[ScoredWidth]:
        """Return all scores, grouped by width vector.

        Returns:
            The scores.
        """
        return [scored for each in self._known.values() for scored in each]

    def add(self, scored: ScoredWidth, claim: int | None = None) -> ScoredWidth | None:
        """Write a finished trial.

        Args:
            scored: The width vector and its score.
            claim: The claim of this width from `claim`, if there is one; without it, the trial is written in one
                operation.

        Returns:
            The score as other workers will read it, or None if others believed this worker dead and one of them scores
            the width now.
        """
        content, state = _encoded(scored), TrialState.COMPLETE if scored.score.is_complete else TrialState.PRUNED
        if claim is not None:
            self._beats.end(claim)
            if not self._trials.finish(claim, state, scored.score.value, content):
                return self._added_late(scored)
        else:
            attrs: dict[str, Any] = {"bins": list(scored.bin_counts), "score": content}
            if self.is_shared:
                attrs["claim"] = claims.claim_of_this_process()
            new = NewTrial(state, scored.score.value, self._widths(scored.bin_counts), attrs)
            self._trials.create(new, self._admits_all)
        self._take_in(self._trials.own())
        return self._known[scored.bin_counts][-1]

    def claim(self, bin_counts: IntArray) -> int | None:
        """Claim a width for this worker.

        Args:
            bin_counts: Bins per group.

        Returns:
            The claim, or None if another worker has one.
        """
        key = key_of(bin_counts)
        if self._holder(key) is not None:
            return None
        own = claims.claim_of_this_process()
        attrs = {"bins": list(key), "claim": own}
        new = NewTrial(TrialState.RUNNING, None, self._widths(key), attrs)

        def admits(changes: Sequence[StoredTrial]) -> bool:
            self._take_in(changes)
            first = next((trial for trial in self._sorted_running() if self._key(trial) == key), None)
            return first is None or first.attrs["claim"].get("id") == own["id"]

        claim = self._trials.create(new, admits)
        self._take_in(self._trials.own())
        if claim is not None:
            self._beats.begin(claim)
        return claim

    def give_up(self, claim: int) -> None:
        """End a claim without a score; it is no error if another worker has ended it before.

        Args:
            claim: The claim from `claim`.
        """
        self._beats.end(claim)
        self._trials.finish(claim, TrialState.FAIL, None, None)
        self._running.pop(claim, None)
        self._watch.forget(claim)
        self.refresh()

    def _added_late(self, scored: ScoredWidth) -> ScoredWidth | None:
        """Add a score whose claim others have ended, unless one of them has scored the width or does so now."""
        self.refresh()
        for each in self.get(np.array(scored.bin_counts)):
            if (each.search, each.is_exact) == (scored.search, scored.is_exact):
                return each
        again = self.claim(np.array(scored.bin_counts))
        return None if again is None else self.add(scored, again)

    def _holder(self, key: Key) -> StoredTrial | None:
        """Return the running trial that holds a width: the first one whose worker is alive."""
        for trial in self._sorted_running():
            if self._key(trial) != key:
                continue
            count = partial(self._trials.count_of, trial.trial_id)
            if not self._watch.is_dead(trial.trial_id, trial.attrs["claim"], count):
                return trial
            self.give_up(trial.trial_id)
        return None

    def _sorted_running(self) -> list[StoredTrial]:
        """Return the running trials, the first one first."""
        return [self._running[number] for number in sorted(self._running)]

    def _take_in(self, changes: Sequence[StoredTrial]) -> None:
        """Take in trials that are new or have ended."""
        for trial in changes:
            self._learn(trial)

    def _admits_all(self, changes: Sequence[StoredTrial]) -> bool:
        """Take in what is new before a finished trial is written, which nothing forbids."""
        self._take_in(changes)
        return True

    def _learn(self, trial: StoredTrial) -> None:
        """Take in one trial of the study."""
        if trial.state == TrialState.RUNNING and "claim" in trial.attrs:
            self._running[trial.trial_id] = trial
            return
        if trial.state.is_finished() and self._running.pop(trial.trial_id, None) is not None:
            self._watch.forget(trial.trial_id)
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and "score" in trial.attrs:
            scored = _decoded(self._key(trial), trial)
            self._known.setdefault(scored.bin_counts, []).append(scored)
            self._arrived.append(scored.bin_counts)

    def _key(self, trial: StoredTrial) -> Key:
        """Return the bins per group of a trial; those of earlier versions only tell the widths."""
        if "bins" in trial.attrs:
            return tuple(trial.attrs["bins"])
        return tuple(group.bin_count(int(trial.params[group.name])) for group in self.bins.groups)

    def _widths(self, key: Key) -> dict[str, int]:
        """Return the channels per group, by name, as the parameters of a trial."""
        return {group.name: group.width(number) for group, number in zip(self.bins.groups, key, strict=True)}

    def warn(self, words: str) -> None:
        """Keep a warning about the scores with the study, so that a report says it, too.

        Args:
            words: The warning.
        """
        self._repeat(lambda: self._storage.set_study_user_attr(self._study_id, WARNING, words))

    def _check_identity(self, identity: dict[str, Any], storage: str) -> None:
        """Refuse a study of another program, supernet or data set; record the identity in a new study."""
        is_empty = not has_trials(self._storage, self._study_id)  # read first: another worker may start right now
        before = self._storage.get_study_user_attrs(self._study_id).get("identity")
        if before is None:
            if not is_empty:
                raise StoreError(
                    f"the study {self.name!r} in {without_password(storage)} must be a search's, but is another "
                    "program's; use another directory, or another study name or storage, or remove it"
                )
            self._storage.set_study_user_attr(self._study_id, "identity", identity)
            return
        differing = [key for key in {**before, **identity} if before.get(key) != identity.get(key)]
        if differing:
            details = "; ".join(f"{key} was {before.get(key)!r}, is {identity.get(key)!r}" for key in differing[:4])
            raise StoreError(
                f"the study {self.name!r} in {without_password(storage)} must belong to this supernet and data, but is "
                f"another's ({details}); use another directory, or another study name or storage, or remove it"
            )


def _encoded(scored: ScoredWidth) -> dict[str, Any]:
    """Return a score as plain values for the store."""
    score = scored.score
    values = None
    if score.values is not None:
        values = base64.b64encode(zlib.compress(score.values.astype(np.float32).tobytes())).decode()
    return {
        "candidate": score.candidate,
        "num_candidates": score.num_candidates,
        "num_examples": score.num_examples,
        "standard_error": score.standard_error,
        "costs": dict(scored.costs),
        "search": scored.search,
        "label": scored.label,
        "seconds": scored.seconds,
        "is_exact": scored.is_exact,
        "values": values,
    }


def _decoded(key: Key, trial: StoredTrial) -> ScoredWidth:
    """Return the score that a trial holds."""
    content = trial.attrs["score"]
    values = None
    if content["values"] is not None:
        raw = zlib.decompress(base64.b64decode(content["values"]))
        values = np.frombuffer(raw, dtype=np.float32).astype(np.float64)
    score = Score(
        float(trial.value) if trial.value is not None else float("nan"),
        content["candidate"],
        content["num_candidates"],
        content["num_examples"],
        trial.state == TrialState.COMPLETE,
        content["standard_error"],
        values,
    )
    rest = {name: content[name] for name in ("costs", "search", "label", "seconds", "is_exact")}
    return ScoredWidth(key, score, **rest)


class _Beats:
    """Says now and then that this worker still works on its claims, from a thread of its own."""

    def __init__(self, trials: Trials, seconds: float) -> None:
        self._trials, self._seconds = trials, seconds
        self._counts: dict[int, int] = {}
        self._is_counting = False
        self._lock = threading.Lock()

    def begin(self, claim: int) -> None:
        """Begin to count for a claim."""
        with self._lock:
            self._counts[claim] = 0
            is_new, self._is_counting = not self._is_counting, True
        if is_new:
            threading.Thread(target=self._count, name="cafenet-claims", daemon=True).start()

    def end(self, claim: int) -> None:
        """Stop to count for a claim."""
        with self._lock:
            self._counts.pop(claim, None)

    def _count(self) -> None:
        """Raise the count of every claim now and then, until there are none."""
        while True:
            time.sleep(self._seconds)
            with self._lock:
                self._counts = {claim: count + 1 for claim, count in self._counts.items()}
                counts = dict(self._counts)
                self._is_counting = bool(counts)
            if not counts:
                return
            for claim, count in counts.items():
                with suppress(Exception):  # an outage: the worker's own thread deals with it
                    self._trials.beat(claim, count)
