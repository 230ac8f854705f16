"""The trials of a study in a database, in Optuna's own tables, by few and plain statements.

Optuna writes a trial by three statements for each of its parameters, counts all trials to number a new one, and reads
and sorts all of them to find what is new. Here a claim is six statements and a score four, whatever the number of
groups and of trials. Optuna and its dashboard read the same tables.

A claim is atomic: under the study's lock a worker reads what others have written since, and writes its own trial only
if the width is still free. Smallest example: two workers want [4, 8] at once; the second one waits for the lock, finds
the trial of the first, and takes another width.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sql
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState

from cafenet.searching.store.optuna_trials import BEAT
from cafenet.searching.store.outages import Patient
from cafenet.searching.store.stored_trial import NewTrial, StoredTrial

_STUDIES, _TRIALS = models.StudyModel.__table__, models.TrialModel.__table__
_PARAMS, _VALUES = models.TrialParamModel.__table__, models.TrialValueModel.__table__
_ATTRS = models.TrialUserAttributeModel.__table__
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_READ_AT_ONCE = 20_000
"""Number of trials that one statement reads."""


class DatabaseTrials:
    """The trials of one study, read and written by statements of our own."""

    def __init__(self, database: Patient, study_id: int, distributions: Mapping[str, BaseDistribution]) -> None:
        """Begin with nothing read.

        Args:
            database: The database, with Optuna's tables.
            study_id: Number of the study in it.
            distributions: The widths that each group may have.
        """
        self._database, self._study_id = database, study_id
        self._distributions = {name: distribution_to_json(each) for name, each in distributions.items()}
        self._last = 0
        """Id of the last trial that was read; as they are written under the study's lock, none comes before it."""
        self._num_read = 0
        self._running: dict[int, StoredTrial] = {}
        self._own: list[StoredTrial] = []

    def own(self) -> Sequence[StoredTrial]:
        """Returns what this worker has written since the last call."""
        found, self._own = self._own, []
        return found

    def changes(self) -> Sequence[StoredTrial]:
        """Returns trials that are new or finished since the last call."""
        found: list[StoredTrial] = []

        def work(connection: sql.Connection) -> int:
            part = self._changes(connection)
            found.extend(part)  # at once: the end of the transaction may fail, and it would not be read again
            return len(part)

        while self._database.run(work) == _READ_AT_ONCE:
            pass
        return found

    def create(self, new: NewTrial, admits: Callable[[Sequence[StoredTrial]], bool]) -> int | None:
        """Writes a trial under the study's lock, if `admits` agrees to what others have written before.

        Args:
            new: The trial to write.
            admits: Function of the trials that others have written since, which says whether the trial may be written.

        Returns:
            The number of the trial in the storage, or None if it was not admitted.
        """
        admits(self.changes())  # most of what is new, before anybody waits for the lock

        def work(connection: sql.Connection) -> int | None:
            self._lock(connection)
            may_be_written = admits(self._changes(connection))
            own = self._found(new)
            if own is not None:  # it was written, but the answer was lost
                return own
            return self._write(connection, new) if may_be_written else None

        written = self._database.run(work)
        if written is not None and written > self._last:
            trial = StoredTrial(written, self._num_read, new.state, new.value, new.params, new.attrs)
            self._last, self._num_read = written, self._num_read + 1
            self._own.append(trial)
            if not new.state.is_finished():
                self._running[written] = trial
        return written

    def finish(self, trial: int, state: TrialState, value: float | None, score: Mapping[str, Any] | None) -> bool:
        """Ends a running trial, with its score, in one transaction.

        Args:
            trial: Number of the trial in the storage.
            state: State that it ends in.
            value: Its value, or None.
            score: Its score as plain values, or None.

        Returns:
            False if the trial had ended before.
        """
        text = None if score is None else json.dumps(dict(score))

        def work(connection: sql.Connection) -> bool:
            ended = sql.update(_TRIALS).where(_TRIALS.c.trial_id == trial, _TRIALS.c.state == TrialState.RUNNING)
            now = datetime.now(timezone.utc).replace(tzinfo=None)
            if connection.execute(ended.values(state=state, datetime_complete=now)).rowcount == 0:
                return text is not None and self._score_of(connection, trial) == text  # the answer was lost
            if value is not None:
                _write_value(connection, trial, value)
            if text is not None:
                connection.execute(sql.insert(_ATTRS), {"trial_id": trial, "key": "score", "value_json": text})
            return True

        is_done = self._database.run(work)
        if is_done and trial in self._running:
            began = self._running.pop(trial)
            attrs = {**began.attrs} if score is None else {**began.attrs, "score": dict(score)}
            self._own.append(StoredTrial(trial, began.number, state, value, began.params, attrs))
        return is_done

    def beat(self, trial: int, count: int) -> None:
        """Writes the count of a claim.

        Args:
            trial: Number of the trial in the storage.
            count: The count, which rises as long as the worker lives.
        """

        def work(connection: sql.Connection) -> None:
            found = sql.update(_ATTRS).where(_ATTRS.c.trial_id == trial, _ATTRS.c.key == BEAT)
            if connection.execute(found.values(value_json=str(count))).rowcount == 0:
                connection.execute(sql.insert(_ATTRS), {"trial_id": trial, "key": BEAT, "value_json": str(count)})

        self._database.run(work)

    def count_of(self, trial: int) -> int:
        """Reads the count of a claim.

        Args:
            trial: Number of the trial in the storage.

        Returns:
            The count, 0 if none was written.
        """
        query = sql.select(_ATTRS.c.value_json).where(_ATTRS.c.trial_id == trial, _ATTRS.c.key == BEAT)
        return int(self._database.run(lambda connection: connection.execute(query).scalar()) or 0)

    def _lock(self, connection: sql.Connection) -> None:
        """Take the study's lock until the transaction ends."""
        this = _STUDIES.c.study_id == self._study_id
        if connection.dialect.name == "sqlite":  # a write locks the whole file, and nothing else does
            connection.execute(sql.update(_STUDIES).where(this).values(study_id=self._study_id))
        else:
            connection.execute(sql.select(_STUDIES.c.study_id).where(this).with_for_update())

    def _changes(self, connection: sql.Connection) -> list[StoredTrial]:
        """Read trials after the last known one, and those that have ended since."""
        is_new = _TRIALS.c.trial_id > self._last
        is_ended = _TRIALS.c.trial_id.in_(list(self._running)) & _TRIALS.c.state.in_(_ENDED)
        chosen = (
            sql.select(_TRIALS.c.trial_id, _TRIALS.c.number, _TRIALS.c.state)
            .where(_TRIALS.c.study_id == self._study_id, is_new | is_ended if self._running else is_new)
            .order_by(_TRIALS.c.trial_id)
            .limit(_READ_AT_ONCE)
            .subquery()
        )
        query = (
            sql.select(chosen, _VALUES.c.value, _VALUES.c.value_type, _ATTRS.c.key, _ATTRS.c.value_json)
            .join_from(chosen, _VALUES, _VALUES.c.trial_id == chosen.c.trial_id, isouter=True)
            .join(_ATTRS, _ATTRS.c.trial_id == chosen.c.trial_id, isouter=True)
            .order_by(chosen.c.trial_id)
        )
        found = self._with_params(connection, _trials_in(connection.execute(query)))
        for trial in found:
            self._num_read += trial.trial_id > self._last
            self._last = max(self._last, trial.trial_id)
            if trial.state.is_finished():
                self._running.pop(trial.trial_id, None)
            else:
                self._running[trial.trial_id] = trial
        return found

    def _with_params(self, connection: sql.Connection, found: list[StoredTrial]) -> list[StoredTrial]:
        """Add the widths to trials of earlier versions, whose attributes do not hold the bins."""
        without = [each.trial_id for each in found if each.attrs and "bins" not in each.attrs]
        params: dict[int, dict[str, Any]] = {}
        for first in range(0, len(without), 500):
            query = sql.select(_PARAMS.c.trial_id, _PARAMS.c.param_name, _PARAMS.c.param_value)
            for trial, name, value in connection.execute(
                query.where(_PARAMS.c.trial_id.in_(without[first : first + 500]))
            ):
                params.setdefault(trial, {})[name] = value
        return [
            StoredTrial(each.trial_id, each.number, each.state, each.value, params[each.trial_id], each.attrs)
            if each.trial_id in params
            else each
            for each in found
        ]

    def _found(self, new: NewTrial) -> int | None:
        """Return the id of this very trial, if an earlier attempt has written it."""
        token = new.attrs.get("claim", {}).get("id")
        for trial in self._running.values():
            if token is not None and trial.attrs.get("claim", {}).get("id") == token:
                return trial.trial_id
        return None

    def _write(self, connection: sql.Connection, new: NewTrial) -> int:
        """Write a trial with the next number; the caller has the study's lock and has read all trials before."""
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        row = {"number": self._num_read, "study_id": self._study_id, "state": new.state, "datetime_start": now}
        if new.state.is_finished():
            row["datetime_complete"] = now
        written = connection.execute(sql.insert(_TRIALS).values(**row)).inserted_primary_key
        assert written is not None
        trial: int = written[0]
        params = [
            {"trial_id": trial, "param_name": name, "param_value": float(width), "distribution_json": distribution}
            for (name, width), distribution in zip(new.params.items(), self._distributions.values(), strict=True)
        ]
        if params:
            connection.execute(sql.insert(_PARAMS).values(params))
        if new.value is not None:
            _write_value(connection, trial, new.value)
        attrs = [{"trial_id": trial, "key": key, "value_json": json.dumps(each)} for key, each in new.attrs.items()]
        connection.execute(sql.insert(_ATTRS).values(attrs))
        return trial

    def _score_of(self, connection: sql.Connection, trial: int) -> str | None:
        """Return the score of a trial as text."""
        query = sql.select(_ATTRS.c.value_json).where(_ATTRS.c.trial_id == trial, _ATTRS.c.key == "score")
        found: str | None = connection.execute(query).scalar()
        return found


def _write_value(connection: sql.Connection, trial: int, value: float) -> None:
    """Write the value of a trial."""
    stored, kind = models.TrialValueModel.value_to_stored_repr(value)
    connection.execute(sql.insert(_VALUES), {"trial_id": trial, "objective": 0, "value": stored, "value_type": kind})


def _value_of(stored: float | None, kind: Any) -> float | None:
    """Return the value of a trial, or None if there is none; SQLite stores no NaN."""
    if kind is None or (stored is None and kind == models.TrialValueModel.TrialValueType.FINITE):
        return None
    value: float = models.TrialValueModel.stored_repr_to_value(stored, kind)
    return value


def _trials_in(rows: Iterable[Any]) -> list[StoredTrial]:
    """Gather the rows of each trial, one for each attribute."""
    found: dict[int, StoredTrial] = {}
    for trial, number, state, stored, kind, key, text in rows:
        if trial not in found:
            found[trial] = StoredTrial(trial, number, state, _value_of(stored, kind), {}, {})
        if key is not None:
            found[trial].attrs[key] = json.loads(text)  # type: ignore[index]
    return list(found.values())
