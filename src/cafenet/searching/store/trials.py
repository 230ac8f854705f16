"""The trial store: every scored width is a trial of an Optuna study, so that no width is scored twice.

A finished trial is written in one operation. Where several workers share a study, a width is claimed first by a running
trial; of two claims the one with the lower number holds. The claim of a dead worker is given up by whoever meets it.
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


class TrialStore:
    """The study of one supernet."""

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
        """identity: what must be equal for scores to be the same; is_shared: claim widths before scoring them (by
        default where the storage is a URL); stale_seconds: age at which the claim of another machine is given up."""
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
        """Learn what other workers have written meanwhile."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        unfinished, self._running = list(self._running), {}
        for number in [*unfinished, *range(self._num_read, len(trials))]:
            self._learn(trials[number])
        self._num_read = len(trials)

    def get(self, taken: IntArray) -> list[ScoredWidth]:
        """What is known of a width, the oldest first."""
        return self._known.get(key_of(taken), [])

    def all(self) -> list[ScoredWidth]:
        """All scores, width by width."""
        return [scored for each in self._known.values() for scored in each]

    def add(self, scored: ScoredWidth, claim: int | None = None) -> ScoredWidth:
        """Write a finished trial, in one operation where it was not claimed; returns what others will read."""
        content, state = _encoded(scored), TrialState.COMPLETE if scored.score.is_complete else TrialState.PRUNED
        if claim is None or not self._fulfil(claim, state, scored.score.value, content):
            trial = create_trial(
                state=state,
                value=scored.score.value,
                params=self._widths(scored.taken),
                distributions=self._distributions,
                user_attrs={"score": content},
            )
            self._storage.create_new_trial(self._study_id, template_trial=trial)
        self.refresh()
        return self._known[scored.taken][-1]

    def claim(self, taken: IntArray) -> int | None:
        """Take a width for this worker; None where another worker has it."""
        key = key_of(taken)
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
        """End a claim without a score; another worker that thought this one dead may have done so before."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            self._storage.set_trial_state_values(claim, TrialState.FAIL)
        self.refresh()

    def _fulfil(self, claim: int, state: TrialState, value: float, content: dict[str, Any]) -> bool:
        """Finish a claimed trial; False where another worker, which thought this one dead, has ended the claim."""
        try:
            self._storage.set_trial_user_attr(claim, "score", content)
            self._storage.set_trial_state_values(claim, state, [value])
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def _holder(self, key: Key) -> FrozenTrial | None:
        """The running trial that holds a width: the first of those whose worker is alive."""
        for _, trial in sorted(self._running.items()):
            if self._key(trial) != key:
                continue
            if not self._is_dead(trial):
                return trial
            self.give_up(trial._trial_id)
        return None

    def _is_dead(self, trial: FrozenTrial) -> bool:
        claim = trial.user_attrs.get("claim", {})
        if claim.get("host") == socket.gethostname():
            birth = _birth(int(claim["pid"]))
            return birth is None or (birth != claim["birth"] and 0 not in (birth, claim["birth"]))
        return time.time() - float(claim.get("time", 0)) > self._stale_seconds

    def _learn(self, trial: FrozenTrial) -> None:
        if trial.state == TrialState.RUNNING and "claim" in trial.user_attrs:
            self._running[trial.number] = trial
        elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and "score" in trial.user_attrs:
            scored = _decoded(self._key(trial), trial)
            self._known.setdefault(scored.taken, []).append(scored)

    def _key(self, trial: FrozenTrial) -> Key:
        return tuple(group.num_taken(int(trial.params[group.name])) for group in self.bins.groups)

    def _widths(self, key: Key) -> dict[str, int]:
        return {group.name: group.width(number) for group, number in zip(self.bins.groups, key, strict=True)}

    def _check_identity(self, identity: dict[str, Any], storage: str) -> None:
        is_empty = self._storage.get_n_trials(self._study_id) == 0  # asked first: another worker may begin just now
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
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "birth": _birth(pid), "time": time.time()}


def _birth(pid: int) -> int | None:
    """When a process began, in ticks of the machine's clock, or 0 where that is not told; None where it has ended.

    Process numbers are used again, often at once in a container; and a process that was killed stays in the table
    until its parent looks.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if _is_alive(pid) else None
    return None if state in ("Z", "X") else int(fields[18])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
