"""The trials of a study in any storage of Optuna: a journal file, or memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from cafenet.searching.store.stored_trial import NewTrial, StoredTrial

BEAT = "beat"
"""Attribute with the count of a claim."""


class OptunaTrials:
    """The trials of one study, read and written by Optuna.

    Two workers may claim a width at once; of their trials, the one with the lower number holds.
    """

    def __init__(self, storage: BaseStorage, study_id: int, distributions: Mapping[str, BaseDistribution]) -> None:
        """Begin with nothing read.

        Args:
            storage: The storage.
            study_id: Number of the study in it.
            distributions: The widths that each group may have.
        """
        self._storage, self._study_id, self._distributions = storage, study_id, dict(distributions)
        self._num_read = 0
        self._running: list[int] = []
        self._has_written = False

    def changes(self) -> Sequence[StoredTrial]:
        """Returns trials that are new or unfinished since the last call."""
        self._has_written = False
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        found = [trials[number] for number in [*self._running, *range(self._num_read, len(trials))]]
        self._num_read = len(trials)
        self._running = [trial.number for trial in found if not trial.state.is_finished()]
        return [_stored(trial) for trial in found]

    def own(self) -> Sequence[StoredTrial]:
        """Returns all changes, if this worker has written any."""
        return self.changes() if self._has_written else []

    def create(self, new: NewTrial, admits: Callable[[Sequence[StoredTrial]], bool]) -> int | None:
        """Writes a trial in one operation, and then looks whether another one was before it.

        Args:
            new: The trial to write.
            admits: Function of the trials that others have written since, which says whether the trial may be written.

        Returns:
            The number of the trial in the storage, or None if it was not admitted.
        """
        trial = create_trial(
            state=new.state,
            value=new.value,
            params=dict(new.params),
            distributions=self._distributions,
            user_attrs=dict(new.attrs),
        )
        written: int = self._storage.create_new_trial(self._study_id, template_trial=trial)
        before = self.changes()
        if admits(before):
            return written
        self.finish(written, TrialState.FAIL, None, None)
        return None

    def finish(self, trial: int, state: TrialState, value: float | None, score: Mapping[str, Any] | None) -> bool:
        """Ends a running trial.

        Args:
            trial: Number of the trial in the storage.
            state: State that it ends in.
            value: Its value, or None.
            score: Its score as plain values, or None.

        Returns:
            False if the trial had ended before.
        """
        self._has_written = True
        try:
            if score is not None:
                self._storage.set_trial_user_attr(trial, "score", dict(score))
            self._storage.set_trial_state_values(trial, state, None if value is None else [value])
        except UpdateFinishedTrialError:
            return False
        return True

    def beat(self, trial: int, count: int) -> None:
        """Writes the count of a claim.

        Args:
            trial: Number of the trial in the storage.
            count: The count, which rises as long as the worker lives.
        """
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial, BEAT, count)

    def count_of(self, trial: int) -> int:
        """Reads the count of a claim.

        Args:
            trial: Number of the trial in the storage.

        Returns:
            The count, 0 if none was written.
        """
        return int(self._storage.get_trial(trial).user_attrs.get(BEAT, 0))


def _stored(trial: FrozenTrial) -> StoredTrial:
    """Returns a trial without what a search does not need."""
    return StoredTrial(trial._trial_id, trial.number, trial.state, trial.value, trial.params, trial.user_attrs)
