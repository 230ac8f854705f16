"""Recovery of a journal that is damaged before its end.

Optuna numbers trials by the order of the lines that create them. If such a line may be lost, later lines that refer to
a trial by its number are kept only if it is certain which trial they mean: a trial that was created before the first
damage, or the one that the same worker created since the last damage. A score is never given to another width than its
own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from cafenet.common.seals import sealed, unsealed
from cafenet.errors import StoreError

_OF_STUDY = (
    JournalOperation.DELETE_STUDY,
    JournalOperation.SET_STUDY_USER_ATTR,
    JournalOperation.SET_STUDY_SYSTEM_ATTR,
    JournalOperation.CREATE_TRIAL,
)
_OF_TRIAL = (
    JournalOperation.SET_TRIAL_PARAM,
    JournalOperation.SET_TRIAL_STATE_VALUES,
    JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE,
    JournalOperation.SET_TRIAL_USER_ATTR,
    JournalOperation.SET_TRIAL_SYSTEM_ATTR,
)
_SCORED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Salvaged:
    """The operations that are kept, and how much is lost."""

    logs: tuple[dict[str, Any], ...]
    """The operations that are kept, in their order."""
    num_damaged: int
    """Number of lines that are not valid operations."""
    num_lost: int
    """Number of missing trials: one for each damaged line, and those to which no line refers for certain."""


def encoded(log: Mapping[str, Any]) -> bytes:
    """Encode an operation as a line with a digest, by which a changed byte shows.

    Args:
        log: The operation.

    Returns:
        The line with its end.
    """
    return json.dumps(sealed(log), separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> dict[str, Any] | None:
    """Decode the operation in a line.

    Args:
        line: The line as bytes.

    Returns:
        The operation, or None if the line is damaged. A line without a digest was written by an earlier version.
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    log = unsealed(content) if isinstance(content, dict) else None
    if log is None or not {"op_code", "worker_id"} <= log.keys():
        return None
    return log if _needed(log["op_code"]) <= log.keys() else None


def salvaged(lines: Sequence[bytes], path: Path) -> Salvaged:
    """Decode the lines of a journal and keep the operations whose meaning is certain.

    A last line without a line end is left out, because it is still being written or a crash cut it off.

    Args:
        lines: The lines of the file, with their line ends.
        path: The file, for error messages.

    Returns:
        All operations of an intact journal, or those of a damaged one that are certain.

    Raises:
        StoreError: If no line is a valid operation.
    """
    whole = [line for line in lines if line.endswith(b"\n")]
    logs = [decoded(line) for line in whole]
    good = tuple(log for log in logs if log is not None)
    if whole and not good:
        raise StoreError(f"{path} must be a journal, but is not; use another path, or remove it")
    if len(good) == len(logs):
        return Salvaged(good, 0, 0)
    keeper = _Keeper()
    for log in logs:
        keeper.take(log)
    return Salvaged(tuple(keeper.kept), len(logs) - len(good), keeper.num_lost)


@dataclass
class _Keeper:
    """Goes through the lines of a damaged journal and keeps those whose meaning is certain."""

    kept: list[dict[str, Any]] = field(default_factory=list)
    num_lost: int = 0
    num_damaged: int = 0
    studies: list[str] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    """Studies that say which supernet and data they belong to, or that had trials before the first damage."""
    num_trials: int = 0
    number_now: dict[int, int] = field(default_factory=dict)
    """New number of each trial whose number in the damaged journal is known."""
    claimed: dict[str, int] = field(default_factory=dict)
    """The trial that each worker has created since the last damage and not finished."""
    is_lost: bool = False
    """True if the line that creates a study may be missing: then no later line says for certain which study it
    means."""

    def take(self, log: dict[str, Any] | None) -> None:
        """Process the next operation, or None for a damaged line."""
        if log is None:
            self.num_lost += 1
            self.num_damaged += 1
            self.claimed.clear()
        elif log["op_code"] == JournalOperation.CREATE_STUDY:
            self._take_study(log)
        elif self.is_lost:
            self.num_lost += log["op_code"] == JournalOperation.CREATE_TRIAL
        elif log["op_code"] == JournalOperation.CREATE_TRIAL:
            self._take_trial(log)
        elif log["op_code"] in _OF_TRIAL:
            self._take_change(log)
        else:
            self._take_attribute(log)

    def _take_study(self, log: dict[str, Any]) -> None:
        """Process the creation of a study; every worker writes such a line, but only the first of a name creates a
        study."""
        is_new = log["study_name"] not in self.studies
        if is_new and self.num_damaged:
            self.is_lost = True
        if self.is_lost:
            return
        if is_new:
            self.studies.append(log["study_name"])
        self.kept.append(log)

    def _take_attribute(self, log: dict[str, Any]) -> None:
        """Process an attribute of a study."""
        if log["op_code"] in _OF_STUDY and log["study_id"] < len(self.studies):
            if "identity" in log.get("user_attr", {}):
                self.known.add(log["study_id"])
            self.kept.append(log)

    def _take_trial(self, log: dict[str, Any]) -> None:
        """Process the creation of a trial."""
        if not self.num_damaged:
            self.known.add(log["study_id"])
        if log["study_id"] not in self.known:
            self.num_lost += 1
            return
        if not self.num_damaged:
            self.number_now[self.num_trials] = self.num_trials
        if log.get("state", TrialState.RUNNING) == TrialState.RUNNING:
            self.claimed[log["worker_id"]] = self.num_trials
        self.num_trials += 1
        self.kept.append(log)

    def _take_change(self, log: dict[str, Any]) -> None:
        """Process a change of a trial."""
        state = log.get("state")
        number = self.number_now.get(log["trial_id"])
        is_own = state is None or state in _SCORED  # otherwise it may end the claim of a dead worker
        if number is None and is_own and log["worker_id"] in self.claimed:
            number = self.number_now[log["trial_id"]] = self.claimed[log["worker_id"]]
        if number is None:
            self.num_lost += state in _SCORED
            return
        if state is not None and self.claimed.get(log["worker_id"]) == number:
            del self.claimed[log["worker_id"]]
        self.kept.append({**log, "trial_id": number})


def _needed(operation: Any) -> set[str]:
    """Return the keys that an operation must have beside its kind and its worker."""
    if operation == JournalOperation.CREATE_STUDY:
        return {"study_name", "directions"}
    if operation == JournalOperation.CREATE_TRIAL:
        return {"study_id", "datetime_start"}
    if operation in _OF_STUDY:
        return {"study_id"}
    return {"trial_id"} if operation in _OF_TRIAL else set()
