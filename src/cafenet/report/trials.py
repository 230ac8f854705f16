"""The scored widths of a supernet, read from the journal of its study."""

from dataclasses import dataclass
from pathlib import Path

import optuna

from cafenet.searching.store.journal_file import open_storage
from cafenet.searching.store.trials import WARNING

_STATES = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)


@dataclass(frozen=True)
class TrialRecord:
    """One scored width."""

    widths: dict[str, int]
    """Channels of each group, by name."""
    value: float
    """The score, or its estimate if the width was dropped early."""
    costs: dict[str, float]
    """Costs by name: flops and params."""
    search: str
    """Name of the search that asked for the score."""
    label: str
    """Moment of the search, for example "iteration 3"."""
    is_complete: bool
    """False if the width was dropped early."""
    is_exact: bool
    """True if every candidate was scored on all examples."""
    seconds: float
    """Time that scoring took."""


def read_trials(journal: Path) -> list[TrialRecord]:
    """Read the finished trials of a study.

    Args:
        journal: The journal file, which may be missing.

    Returns:
        The trials, oldest first.

    Raises:
        StoreError: If the file is no journal.
    """
    return read_study(journal)[0]


def read_study(journal: Path) -> tuple[list[TrialRecord], str]:
    """Read the finished trials of a study, and what its search warned of.

    Args:
        journal: The journal file, which may be missing.

    Returns:
        The trials, oldest first, and the warning, which is empty if there was none.

    Raises:
        StoreError: If the file is no journal.
    """
    if not journal.is_file():
        return [], ""
    storage = open_storage(journal, is_read_only=True)
    studies = storage.get_all_studies()
    trials = [
        record
        for study in studies
        for trial in storage.get_all_trials(study._study_id, deepcopy=False, states=_STATES)
        for record in _record(trial)
    ]
    return trials, next((str(found) for study in studies if (found := study.user_attrs.get(WARNING))), "")


def _record(trial: optuna.trial.FrozenTrial) -> list[TrialRecord]:
    """Return the record of a trial, or none if it holds no score."""
    score = trial.user_attrs.get("score")
    if score is None or trial.value is None:
        return []
    return [
        TrialRecord(
            widths={name: int(width) for name, width in trial.params.items()},
            value=float(trial.value),
            costs=score["costs"],
            search=score["search"],
            label=score["label"],
            is_complete=trial.state == optuna.trial.TrialState.COMPLETE,
            is_exact=score["is_exact"],
            seconds=score["seconds"],
        )
    ]
