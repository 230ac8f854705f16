"""A trial as it stands in a storage, and what a storage must do for a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from optuna.trial import TrialState


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """A trial as it stands in a storage."""

    trial_id: int
    """Number of the trial in the whole storage."""
    number: int
    """Number of the trial in its study."""
    state: TrialState
    """State of the trial; a running trial with a claim is a width that is being scored."""
    value: float | None
    """Score, if the trial has one."""
    params: Mapping[str, Any]
    """Channels per group, by name; empty if the attributes hold the bins."""
    attrs: Mapping[str, Any]
    """Attributes by name: `bins`, `claim` and `score`."""


@dataclass(frozen=True)
class NewTrial:
    """A trial to be written."""

    state: TrialState
    """State of the trial: running for a claim, or finished."""
    value: float | None
    """Score of a finished trial."""
    params: Mapping[str, int]
    """Channels per group, by name."""
    attrs: Mapping[str, Any]
    """Attributes by name."""


class Trials(Protocol):
    """The trials of one study in a storage."""

    def changes(self) -> Sequence[StoredTrial]:
        """Returns trials that are new or finished since the last call.

        Returns:
            The trials in the order of their numbers.
        """
        ...

    def own(self) -> Sequence[StoredTrial]:
        """Returns what this worker has written, and perhaps what others have.

        Returns:
            The trials, none of which `changes` returns, too.
        """
        ...

    def create(self, new: NewTrial, admits: Callable[[Sequence[StoredTrial]], bool]) -> int | None:
        """Writes a trial if `admits` agrees.

        Args:
            new: The trial.
            admits: Function that takes in what changed meanwhile, and says whether the trial may be written.

        Returns:
            The id of the trial, or None if it was not written.
        """
        ...

    def finish(self, trial: int, state: TrialState, value: float | None, score: Mapping[str, Any] | None) -> bool:
        """Ends a running trial.

        Args:
            trial: Id of the trial.
            state: Its final state.
            value: Its value, if it has one.
            score: The attribute `score`, if it has one.

        Returns:
            False if the trial had ended before.
        """
        ...

    def beat(self, trial: int, count: int) -> None:
        """Writes the count of a claim, by which others see that its worker lives.

        Args:
            trial: Id of the claimed trial.
            count: The count.
        """
        ...

    def count_of(self, trial: int) -> int:
        """Reads the count of a claim.

        Args:
            trial: Id of the claimed trial.

        Returns:
            The count, 0 if there is none yet.
        """
        ...
