"""The check run: every group is cut differently, and the shape of every intermediate result is compared with the
trace.

A model's code may fix sizes that the trace cannot see (`view(-1, 512)`, `split(16)`, a test on `x.shape`). If widths
change, such code either raises an error or gives another shape somewhere. The groups at fault are frozen with that as
the reason, and the run is repeated until it passes.

A run continues after a fault with the results that the trace predicts, so that it finds as many faults as possible. The
suspects of these faults are then tried together, one of each fault at a time.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cafenet.modules.calling import call, training_mode
from cafenet.modules.inputs import copied
from cafenet.modules.outputs import chosen_outputs
from cafenet.modules.randomness import fixed_randomness
from cafenet.space.layout import IntArray, Layout, Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors
from cafenet.tracing.atoms import Atoms, Labels
from cafenet.tracing.build import layout_of
from cafenet.tracing.grouping import Group, Grouping, group_units
from cafenet.tracing.passes import Pass
from cafenet.tracing.recording import BROADCAST, EagerMode, ModulePaths, Record, Run, on_one_device, tensors_in
from cafenet.tracing.size_ties import SizeTie, asked_sizes, find_ties
from cafenet.tracing.stand_in import size_depends_on_values, stand_in
from cafenet.tracing.values import Values, has_value

# Whether a reshape copies first depends on strides, and so on whether a dimension has the size 1.
_COPY = torch.ops.aten.clone.default
_RESHAPES = {torch.ops.aten._unsafe_view.default: torch.ops.aten.view.default}
_VIEWS = {*_RESHAPES, *_RESHAPES.values()}
_SAME_CALL = {(torch.ops.aten.slice.Tensor, torch.ops.aten.alias.default)}  # x[:, :64], with 64 channels or fewer
_RESHAPE_CALLS = {torch.reshape, Tensor.reshape}

_REMEDY = "to let it, take sizes from x.shape, or as they are from int attributes of the module"


class _Mismatch(Exception):
    """Raised if the check run departs from the trace."""


class _OtherValues(Exception):
    """Raised if a size depends on values, which differ at other widths; the widths themselves are not at fault."""


@dataclass(frozen=True, eq=False)
class _Fault:
    """An error of the check run, its place, and the op of the trace at which it happened (None after the last op)."""

    reason: str
    path: str
    record: Record | None


@dataclass(frozen=True, eq=False)
class _Failure:
    """The reason why a check run failed, its place, and the groups that may have caused it."""

    reason: str
    path: str
    suspects: frozenset[int]


def find_faults(model: nn.Module, atoms: Atoms, passes: Sequence[Pass]) -> None:
    """Freezes all groups that the model's code does not let vary in one of the passes.

    Args:
        model: The traced model, which is not changed.
        atoms: Everything that the rules have recorded; the freezes are added to it.
        passes: The passes to repeat with cut groups.
    """
    for this in passes:
        _find_faults_in(model, atoms, this, [each.run for each in passes])


def _find_faults_in(model: nn.Module, atoms: Atoms, this: Pass, runs: Sequence[Run]) -> None:
    tied = _Tied(atoms) if any(run.has_attention for run in runs) else None
    for turn in itertools.count():
        grouping = group_units(atoms)
        if not grouping.groups:
            return
        checker = _Checker(model, this, grouping, layout_of(model, atoms, runs, grouping))
        failures = checker.failures(range(len(grouping.groups)))
        if not failures:
            return
        if tied is not None and tied.changed(checker.ties, failures, grouping):
            continue
        if this.training and any(checker.failures(()) for _ in range(3)):
            return  # the pass differs each time, even at full width, so it says nothing about widths
        for number, failure in checker.guilty(failures, thorough=turn > 0).items():
            group = grouping.groups[number]
            atoms.freeze(group.axis.first + group.positions, failure.reason, failure.path)


class _Tied:
    """The ties of sizes that were tried so far (see `size_ties`)."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._ties: list[SizeTie] = []
        self._refused: set[bytes] = set()

    def changed(self, proposed: Sequence[SizeTie], failures: Sequence[_Failure], grouping: Grouping) -> bool:
        """Adds the ties that are new, or takes back those whose groups are at fault all the same.

        Returns:
            Whether the check run must be repeated before any group is frozen.
        """
        new = [tie for tie in proposed if tie.is_new(grouping.component) and tie.key not in self._refused]
        for tie in new:
            self._ties.append(tie)
            self._atoms.tie(tie.label, tie.source, "", "")
        if new:
            return True
        suspects = set().union(*(failure.suspects for failure in failures))
        wrong = [tie for tie in self._ties if not suspects.isdisjoint(_groups_of_label(grouping, tie.label))]
        for tie in wrong:
            self._refused.add(tie.key)
            self._ties.remove(tie)
            self._atoms.untie(tie.label, tie.source)
        return bool(wrong)


def _groups_of_label(grouping: Grouping, label: IntArray) -> set[int]:
    units = grouping.unit_of_atom[label]
    return set(grouping.group_of_unit[units[units >= 0]].tolist())


class _Checker:
    """Repeats the traced run with some groups cut."""

    def __init__(self, model: nn.Module, this: Pass, grouping: Grouping, layout: Layout) -> None:
        self._model, self._pass, self._grouping, self._layout = model, this, grouping, layout
        self._harness = Harness(model, layout)
        self._kept = _kept(grouping.groups)
        self.ties: list[SizeTie] = []
        """Ties that would explain faults of the runs so far."""

    def failures(self, cut: Sequence[int]) -> list[_Failure]:
        """Runs the model with these groups cut and all others whole, and returns the failures in order of
        appearance.
        """
        groups = enumerate(self._grouping.groups)
        subnet = Subnet(tuple(self._kept[n] if n in cut else np.arange(group.units.size) for n, group in groups))
        chosen = cuts(self._layout, subnet)
        buffers = self._harness.buffers()
        this, ground = self._pass, self._pass.ground
        sliced = slice_tensors(ground.tensors, self._layout, chosen)
        sliced = {name: t.clone() if name in buffers else t for name, t in sliced.items()}
        args, kwargs = copied((ground.args, ground.kwargs))
        values = None if ground.values is None else ground.values.again()
        if values is not None:
            sliced, args, kwargs = values.beside((sliced, args, kwargs))
        paths = ModulePaths(self._model)
        sizes = _Sizes(self._grouping, subnet.keeps(self._layout))
        mode = _CompareMode(this.run.records, sizes, paths, values, this.seed)
        try:
            with (
                torch.no_grad(),
                fixed_randomness(this.seed),
                training_mode(self._model, this.training),
                self._harness.patched(chosen),
                paths.watching(),
                mode,
                _ReshapeMode(mode),
            ):
                output = call(self._model, sliced, args, kwargs)
            mode.expect_end()
            _expect_shapes(chosen_outputs(output, this.run.output_paths), this.run.output_shapes)
        except Exception as error:  # any way in which the model's own code can fail at other widths
            mode.note(error)
        finally:
            if values is not None:
                values.give_back()
        self.ties += mode.ties
        return [
            _Failure(f"does not let its width vary: {fault.reason}; {_REMEDY}", fault.path, self._suspects(fault, cut))
            for fault in mode.faults
        ]

    def guilty(self, failures: Sequence[_Failure], *, thorough: bool) -> dict[int, _Failure]:
        """Suspects that fail alone, each with its first failure; or else another group that fails alone; or else all
        suspects.

        If `thorough` is False, suspects are tried only until every failure is explained, which mostly finds them all.
        """
        suspected: dict[int, _Failure] = {}
        for failure in failures:
            suspected = {number: failure for number in sorted(failure.suspects)} | suspected
        found = self._failing_alone(sorted(suspected), [failure.suspects for failure in failures], thorough)
        if found:
            return {number: suspected[number] for number in sorted(found)}
        first = failures[0]
        others = self._bisect(list(range(len(self._grouping.groups))))
        return dict.fromkeys(others if len(others) == 1 or not first.suspects else sorted(first.suspects), first)

    def _failing_alone(self, suspects: Sequence[int], together: Sequence[frozenset[int]], thorough: bool) -> set[int]:
        """Finds the suspects that fail alone, or enough of them to explain every fault.

        Groups that are not suspected of the same fault are tried in one run. If such a run fails without showing which
        of its groups is at fault, its groups are tried one by one.
        """
        found: set[int] = set()
        for several in _apart(suspects, together):
            if not thorough and all(each & found for each in together if each):
                break
            failures = self.failures(several)
            if len(several) == 1:
                found |= set(several) if failures else set()
                continue
            blamed = {number for failure in failures if len(failure.suspects) == 1 for number in failure.suspects}
            if any(not failure.suspects & blamed for failure in failures):
                blamed |= {number for number in several if number not in blamed and self.failures([number])}
            found |= blamed
        return found

    def _bisect(self, groups: list[int]) -> list[int]:
        """Finds one group that fails alone, or the smallest failing set that halving reaches."""
        while len(groups) > 1:
            half = len(groups) // 2
            failing = next((part for part in (groups[:half], groups[half:]) if self.failures(part)), None)
            if failing is None:
                return groups
            groups = failing
        return groups

    def _suspects(self, fault: _Fault, cut: Sequence[int]) -> frozenset[int]:
        """Groups that flow through the failing op or, if there are none, those of the failing module's own
        parameters.
        """
        record = fault.record
        flowing = self._groups_of(record.inputs + record.outputs if record else ())
        return frozenset((flowing or self._groups_inside(fault.path)) & set(cut))

    def _groups_inside(self, path: str) -> set[int]:
        """The groups of the parameters and buffers of a module; none for the model itself."""
        inside = [dims for name, dims in self._layout.axes.items() if path and name.startswith(f"{path}.")]
        patterns = {pattern for dims in inside for pattern in dims.values()}
        return set().union(*(self._groups_in(self._layout.patterns[pattern]) for pattern in patterns))

    def _groups_of(self, labels: Sequence[Labels]) -> set[int]:
        found: set[int] = set()
        for label in (label for each in labels for label in each if label is not None and label is not BROADCAST):
            found |= self._groups_in(np.where(label >= 0, self._grouping.unit_of_atom[label], -1))
        return found

    def _groups_in(self, units: IntArray) -> set[int]:
        return set(self._grouping.group_of_unit[units[units >= 0]].tolist())


def _apart(suspects: Sequence[int], together: Sequence[frozenset[int]]) -> list[list[int]]:
    """Divides the suspects into few sets, so that no set has two suspects of the same fault."""
    rivals: dict[int, set[int]] = {number: set() for number in suspects}
    for each in together:
        for number in each:
            rivals[number] |= each
    sets: list[list[int]] = []
    for number in suspects:
        fitting = next((several for several in sets if rivals[number].isdisjoint(several)), None)
        if fitting is None:
            sets.append([number])
        else:
            fitting.append(number)
    return sets


def _kept(groups: Sequence[Group]) -> list[IntArray]:
    """The units that a check run keeps of each group: trailing ones, and different shares of different groups, as far
    as their numbers of units allow.

    So the size of a dimension tells whose it is. Groups with few units choose first. One unit is kept only where there
    are two: of a dimension of size 1 the strides say nothing, so that PyTorch may run other ops for the same call.
    """
    kept: dict[int, IntArray] = {}
    taken = Counter[float]()
    for number in sorted(range(len(groups)), key=lambda number: groups[number].units.size):
        size = groups[number].units.size
        low = max(groups[number].min_units, size // 3, min(2, size - 1))
        num_kept = min(range(low, max(size, low + 1)), key=lambda num: taken[num / size])
        taken[num_kept / size] += 1
        kept[number] = np.arange(size - num_kept, size)
    return [kept[number] for number in range(len(groups))]


def _expect_shapes(outputs: Sequence[tuple[str, Tensor]], shapes: Sequence[tuple[int, ...]]) -> None:
    found = [tuple(tensor.shape) for _, tensor in outputs]
    if found != list(shapes):
        raise _Mismatch(f"the model's outputs have sizes {found} instead of {list(shapes)}")


class _Sizes:
    """Predicts the size of a labelled dimension when only some units are kept."""

    def __init__(self, grouping: Grouping, keep: Any) -> None:
        self._units, self._keep = grouping.unit_of_atom, keep
        self._known: dict[int, int] = {}

    def predict(self, size: int, label: IntArray | None) -> int:
        if label is None:
            return size
        if id(label) not in self._known:
            self._known[id(label)] = int(self._keep[np.where(label >= 0, self._units[label], -1)].sum())
        return self._known[id(label)]


class _CompareMode(EagerMode):
    """Lets the ops run, and notes those that have another shape than in the trace; stops if other ops run."""

    def __init__(
        self, records: Sequence[Record], sizes: _Sizes, paths: ModulePaths, values: Values | None, seed: int
    ) -> None:
        super().__init__(values, seed)
        self._records = [record for record in records if record.func is not _COPY]
        self._sizes, self._paths = sizes, paths
        self._position = 0
        self.path = ""
        self.faults: list[_Fault] = []
        self.ties: list[SizeTie] = []
        self._is_standing_in = False

    @property
    def failing(self) -> Record | None:
        return self._records[self._position] if self._position < len(self._records) else None

    def expect_end(self) -> None:
        if self._position < len(self._records):
            raise _Mismatch("other ops run at other widths (fewer than at full width)")

    def note(self, error: Exception) -> None:
        """Records the error at the current op."""
        reason = str(error) if isinstance(error, _Mismatch) else f"{type(error).__name__}: {error}"
        line = reason.strip().splitlines()[0] if reason.strip() else type(error).__name__
        self.faults.append(_Fault(line, self.path, self.failing))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.path = self._paths.path
        args, kwargs, tensors = on_one_device(args, kwargs or {}, self._values)
        if self._is_standing_in:
            return func(*args, **kwargs)
        if func is _COPY:
            return self.execute(func, args, kwargs, tensors)
        record = self.failing
        if record is None or _RESHAPES.get(record.func, record.func) is not _RESHAPES.get(func, func):
            other = _Mismatch(f"other ops run at other widths ({func})")
            if record is not None and (record.func, func) in _SAME_CALL:
                return self._go_on(other, record.func, tensors, ())
            raise other
        out: Any = None
        try:
            out = self.execute(func, args, kwargs, tensors)
            self._compare(func, out, record)
        except Exception as error:
            if func in _VIEWS:
                self.explain(asked_sizes(args, kwargs))
            return self._go_on(error, func, tensors, list(tensors_in((out,))))
        self._position += 1
        return out

    def explain(self, asked: Sequence[int]) -> None:
        """Looks for the dimensions from which the sizes of a failing reshape were taken."""
        record = self.failing
        if record is not None:
            self.ties += find_ties(asked, record, self._records[: self._position], self._sizes.predict)

    def go_on_past_reshape(self, error: Exception, inputs: Sequence[Tensor], asked: Sequence[int]) -> Any:
        """Continues after a reshape that raised before any op ran."""
        record = self.failing
        if record is None or record.func not in _VIEWS:
            raise error
        self.explain(asked)
        self.path = self._paths.path
        self._is_standing_in = True  # no op is running, so the ops that create the stand-in arrive in this mode too
        try:
            return self._go_on(error, record.func, inputs, ())
        finally:
            self._is_standing_in = False

    def _go_on(self, error: Exception, func: Any, inputs: Sequence[Tensor], found: Sequence[Tensor]) -> Any:
        """Notes the error, and continues with the results that the trace predicts for this op."""
        record = self._records[self._position]
        out = None if _is_broadcast(record) else stand_in(func, inputs, found, self._shapes(record))
        if out is None:
            raise error
        if self._values is not None and all(map(has_value, inputs)):
            out = self._values.with_zeros(out)
        if not isinstance(error, _OtherValues):
            self.note(error)
        self._position += 1
        return out

    def _shapes(self, record: Record) -> list[list[int]]:
        return [
            [self._sizes.predict(size, label) for size, label in zip(shape, labels, strict=True)]
            for shape, labels in zip(record.shapes, record.outputs, strict=True)
        ]

    def _compare(self, func: Any, out: Any, record: Record) -> None:
        for tensor, shape, labels in zip(tensors_in((out,)), record.shapes, record.outputs, strict=True):
            for dim, (found, size, label) in enumerate(zip(tensor.shape, shape, labels, strict=True)):
                if label is not BROADCAST and found != self._sizes.predict(size, label):
                    if label is None and size_depends_on_values(func):
                        raise _OtherValues
                    raise _Mismatch(
                        f"{func} gives size {found} in dimension {dim} where "
                        f"{self._sizes.predict(size, label)} of {size} channels are kept"
                    )


def _is_broadcast(record: Record) -> bool:
    """Whether the size of a result depends on what it will meet later, so that it cannot be predicted here."""
    return any(label is BROADCAST for labels in record.outputs for label in labels)


class _ReshapeMode(TorchFunctionMode):
    """Continues after a `reshape` that raises: it rejects impossible sizes before it runs any op."""

    def __init__(self, mode: _CompareMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _RESHAPE_CALLS:
            return func(*args, **(kwargs or {}))
        num_faults = len(self._mode.faults)
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if len(self._mode.faults) > num_faults:  # the op itself raised, and no result can replace its own
                raise
            return self._mode.go_on_past_reshape(error, list(tensors_in(args)), asked_sizes(args, kwargs or {}))
