"""The trial store: every scored width is a trial of an Optuna study, so that no width is scored twice.

A finished trial is written in one operation. If several workers share a study, a worker first claims a width with a
running trial; of two claims, the one with the lower number holds. Any worker that meets the claim of a dead worker
gives it up.
"""

import base64
import os
import socket
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from cafenet.errors import StoreError
from cafenet.scoring.scorer import Score
from cafenet.searching.store.journal_file import open_storage, without_password
from cafenet.searching.store.scored_width import Key, ScoredWidth, key_of
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
        stale_seconds: float = 600.0,
    ) -> None:
        """Open the study, or create it.

        Args:
            storage: A journal file, an Optuna storage URL, or None to keep trials in memory.
            bins: The bins of each group.
            identity: Everything that scores depend on, as plain values by name.
            name: Name of the study.
            is_shared: If True, widths are claimed before they are scored. By default this is so for URLs.
            stale_seconds: Age at which the claim of a worker on another machine is given up.

        Raises:
            StoreError: If the storage cannot be opened, or the study has another identity.
        """
        self.bins, self.name, self.storage = bins, name, storage
        self.is_shared = "://" in str(storage) if is_shared is None else is_shared
        self._stale_seconds = stale_seconds
        self._distributions: dict[str, BaseDistribution] = {
            group.name: IntDistribution(group.first, group.channels, step=group.size) for group in bins.groups
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._storage = optuna.storages.InMemoryStorage() if storage is None else open_storage(storage)
        study = optuna.create_study(storage=self._storage, study_name=name, direction="maximize", load_if_exists=True)
        self._study_id = study._study_id
        self._check_identity(dict(identity), str(storage))
        self._known: dict[Key, list[ScoredWidth]] = {}
        self._running: dict[int, FrozenTrial] = {}
        self._num_read = 0
        self.refresh()

    def refresh(self) -> None:
        """Read what other workers have written meanwhile."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        unfinished, self._running = list(self._running), {}
        for number in [*unfinished, *range(self._num_read, len(trials))]:
            self._learn(trials[number])
        self._num_read = len(trials)

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

    def add(self, scored: ScoredWidth, claim: int | None = None) -> ScoredWidth:
        """Write a finished trial.

        Args:
            scored: The width vector and its score.
            claim: The claim of this width from `claim`, if there is one; without it, the trial is written in one
                operation.

        Returns:
            The score as other workers will read it.
        """
        content, state = _encoded(scored), TrialState.COMPLETE if scored.score.is_complete else TrialState.PRUNED
        if claim is None or not self._fulfil(claim, state, scored.score.value, content):
            trial = create_trial(
                state=state,
                value=scored.score.value,
                params=self._widths(scored.bin_counts),
                distributions=self._distributions,
                user_attrs={"score": content},
            )
            self._storage.create_new_trial(self._study_id, template_trial=trial)
        self.refresh()
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
        trial = create_trial(
            state=TrialState.RUNNING,
            params=self._widths(key),
            distributions=self._distributions,
            user_attrs={"claim": _claim_of_this_process()},
        )
        claim: int = self._storage.create_new_trial(self._study_id, template_trial=trial)
        self.refresh()
        holder = self._holder(key)
        if holder is not None and holder._trial_id != claim:
            self.give_up(claim)
            return None
        return claim

    def give_up(self, claim: int) -> None:
        """End a claim without a score; it is no error if another worker has ended it before.

        Args:
            claim: The claim from `claim`.
        """
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            self._storage.set_trial_state_values(claim, TrialState.FAIL)
        self.refresh()

    def _fulfil(self, claim: int, state: TrialState, value: float, content: dict[str, Any]) -> bool:
        """Finish a claimed trial; return False if another worker, which believed this one dead, has ended the claim."""
        try:
            self._storage.set_trial_user_attr(claim, "score", content)
            self._storage.set_trial_state_values(claim, state, [value])
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def _holder(self, key: Key) -> FrozenTrial | None:
        """Return the running trial that holds a width: the first one whose worker is alive."""
        for _, trial in sorted(self._running.items()):
            if self._key(trial) != key:
                continue
            if not self._is_dead(trial):
                return trial
            self.give_up(trial._trial_id)
        return None

    def _is_dead(self, trial: FrozenTrial) -> bool:
        """Return whether the worker of a running trial has ended, or is on another machine and its claim is too old."""
        claim = trial.user_attrs.get("claim", {})
        if claim.get("host") == socket.gethostname():
            birth = _birth(int(claim["pid"]))
            return birth is None or (birth != claim["birth"] and 0 not in (birth, claim["birth"]))
        return time.time() - float(claim.get("time", 0)) > self._stale_seconds

    def _learn(self, trial: FrozenTrial) -> None:
        """Take in one trial of the study."""
        if trial.state == TrialState.RUNNING and "claim" in trial.user_attrs:
            self._running[trial.number] = trial
        elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and "score" in trial.user_attrs:
            scored = _decoded(self._key(trial), trial)
            self._known.setdefault(scored.bin_counts, []).append(scored)

    def _key(self, trial: FrozenTrial) -> Key:
        """Return the bins per group of a trial."""
        return tuple(group.bin_count(int(trial.params[group.name])) for group in self.bins.groups)

    def _widths(self, key: Key) -> dict[str, int]:
        """Return the channels per group, by name, as the parameters of a trial."""
        return {group.name: group.width(number) for group, number in zip(self.bins.groups, key, strict=True)}

    def warn(self, words: str) -> None:
        """Keep a warning about the scores with the study, so that a report says it, too.

        Args:
            words: The warning.
        """
        self._storage.set_study_user_attr(self._study_id, WARNING, words)

    def _check_identity(self, identity: dict[str, Any], storage: str) -> None:
        """Refuse a study of another program, supernet or data set; record the identity in a new study."""
        is_empty = self._storage.get_n_trials(self._study_id) == 0  # read first: another worker may start right now
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


def _decoded(key: Key, trial: FrozenTrial) -> ScoredWidth:
    """Return the score that a trial holds."""
    content = trial.user_attrs["score"]
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


def _claim_of_this_process() -> dict[str, Any]:
    """Return plain values that identify this process as the owner of a claim."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "birth": _birth(pid), "time": time.time()}


def _birth(pid: int) -> int | None:
    """Return the start time of a process in clock ticks, 0 if the system does not tell it, or None if it has ended.

    Process numbers are reused, often at once in a container, and a killed process stays in the process table until its
    parent notices.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if _is_alive(pid) else None
    return None if state in ("Z", "X") else int(fields[18])


def _is_alive(pid: int) -> bool:
    """Return whether a process with this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
