"""The check run: every group cut differently, and the shape of every intermediate result compared with the trace.

A model's code may fix sizes that the trace cannot see (`view(-1, 512)`, `split(16)`, a test on `x.shape`). Such code
either raises or gives another shape somewhere when widths change. The groups at fault are frozen with that as the
reason, and the run is repeated until it passes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.modules.calling import call, copied, training_mode
from cafenet.modules.outputs import chosen_outputs
from cafenet.modules.randomness import fixed_randomness
from cafenet.space.layout import IntArray, Layout, Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors
from cafenet.tracing.atoms import Atoms, Labels
from cafenet.tracing.build import layout_of
from cafenet.tracing.grouping import Group, Grouping, group_units
from cafenet.tracing.passes import Pass
from cafenet.tracing.recording import BROADCAST, EagerMode, ModulePaths, Record, Run, on_one_device, tensors_in
from cafenet.tracing.values import Values

# Whether a reshape copies first depends on strides, and so on whether a dimension has the size 1.
_COPY = torch.ops.aten.clone.default
_RESHAPES = {torch.ops.aten._unsafe_view.default: torch.ops.aten.view.default}

_REMEDY = "to let it, take sizes from x.shape, or as they are from int attributes of the module"


class _Mismatch(Exception):
    """The check run left the path of the trace."""


@dataclass(frozen=True, eq=False)
class _Failure:
    """Why a check run failed, where, and which groups were in sight."""

    reason: str
    path: str
    suspects: frozenset[int]


def find_faults(model: nn.Module, atoms: Atoms, passes: Sequence[Pass]) -> None:
    """Freeze all groups that the model's code does not let vary in one of the passes."""
    for this in passes:
        _find_faults_in(model, atoms, this, [each.run for each in passes])


def _find_faults_in(model: nn.Module, atoms: Atoms, this: Pass, runs: Sequence[Run]) -> None:
    while True:
        grouping = group_units(atoms)
        if not grouping.groups:
            return
        checker = _Checker(model, this, grouping, layout_of(model, atoms, runs, grouping))
        everything = range(len(grouping.groups))
        failure = checker.failure(everything)
        if failure is None:
            return
        if this.training and any(checker.failure(()) is not None for _ in range(3)):
            return  # takes another way each time, at full width too, so that it says nothing about widths
        for number in checker.guilty(failure):
            group = grouping.groups[number]
            atoms.freeze(group.axis.first + group.positions, failure.reason, failure.path)


class _Checker:
    """Repeats the traced run with some groups cut."""

    def __init__(self, model: nn.Module, this: Pass, grouping: Grouping, layout: Layout) -> None:
        self._model, self._pass, self._grouping, self._layout = model, this, grouping, layout
        self._harness = Harness(model, layout)
        self._kept = _kept(grouping.groups)

    def failure(self, cut: Sequence[int]) -> _Failure | None:
        """What goes wrong when these groups are cut and the others are whole, or None."""
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
            ):
                output = call(self._model, sliced, args, kwargs)
            mode.expect_end()
            _expect_shapes(chosen_outputs(output, this.run.output_paths), this.run.output_shapes)
        except Exception as error:  # any way in which the model's own code can fail at other widths
            reason = str(error) if isinstance(error, _Mismatch) else f"{type(error).__name__}: {error}"
            line = reason.strip().splitlines()[0] if reason.strip() else type(error).__name__
            return _Failure(f"does not let its width vary: {line}; {_REMEDY}", mode.path, self._suspects(mode, cut))
        finally:
            if values is not None:
                values.give_back()
        return None

    def guilty(self, failure: _Failure) -> list[int]:
        """The suspects that fail on their own, else whoever else does, else all suspects."""
        found = [number for number in sorted(failure.suspects) if self.failure([number]) is not None]
        if found:
            return found
        found = self._bisect(list(range(len(self._grouping.groups))))
        return found if len(found) == 1 or not failure.suspects else sorted(failure.suspects)

    def _bisect(self, groups: list[int]) -> list[int]:
        """One group that fails on its own, or the smallest failing set that halving finds."""
        while len(groups) > 1:
            half = len(groups) // 2
            failing = next((part for part in (groups[:half], groups[half:]) if self.failure(part)), None)
            if failing is None:
                return groups
            groups = failing
        return groups

    def _suspects(self, mode: "_CompareMode", cut: Sequence[int]) -> frozenset[int]:
        """Groups that flow through the failing op, else those of the failing module's own parameters."""
        record = mode.failing
        flowing = self._groups_of(record.inputs + record.outputs if record else ())
        owned: set[int] = set()
        for name, dims in self._layout.axes.items():
            if mode.path and name.startswith(f"{mode.path}."):
                for pattern in dims.values():
                    owned |= self._groups_in(self._layout.patterns[pattern])
        return frozenset((flowing or owned) & set(cut))

    def _groups_of(self, labels: Sequence[Labels]) -> set[int]:
        found: set[int] = set()
        for label in (label for each in labels for label in each if label is not None and label is not BROADCAST):
            found |= self._groups_in(np.where(label >= 0, self._grouping.unit_of_atom[label], -1))
        return found

    def _groups_in(self, units: IntArray) -> set[int]:
        return set(self._grouping.group_of_unit[units[units >= 0]].tolist())


def _kept(groups: Sequence[Group]) -> list[IntArray]:
    """The units that a check run keeps of each group: trailing ones, and never equally many of two groups alike."""
    kept, num_alike = [], Counter[int]()
    for group in groups:
        size = group.units.size
        low = max(group.min_units, size // 3)
        num_kept = low + num_alike[size] % max(size - low, 1)
        num_alike[size] += 1
        kept.append(np.arange(size - num_kept, size))
    return kept


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
    """Lets the ops run and stops at the first one that is not the traced one or has another shape."""

    def __init__(
        self, records: Sequence[Record], sizes: _Sizes, paths: ModulePaths, values: Values | None, seed: int
    ) -> None:
        super().__init__(values, seed)
        self._records = [record for record in records if record.func is not _COPY]
        self._sizes, self._paths = sizes, paths
        self._position = 0
        self.path = ""

    @property
    def failing(self) -> Record | None:
        return self._records[self._position] if self._position < len(self._records) else None

    def expect_end(self) -> None:
        if self._position < len(self._records):
            raise _Mismatch("other ops run at other widths (fewer than at full width)")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.path = self._paths.path
        args, kwargs, tensors = on_one_device(args, kwargs or {}, self._values)
        if func is _COPY:
            return self.execute(func, args, kwargs, tensors)
        record = self.failing
        if record is None or _RESHAPES.get(record.func, record.func) is not _RESHAPES.get(func, func):
            raise _Mismatch(f"other ops run at other widths ({func})")
        out = self.execute(func, args, kwargs, tensors)
        for tensor, shape, labels in zip(tensors_in((out,)), record.shapes, record.outputs, strict=True):
            for dim, (found, size, label) in enumerate(zip(tensor.shape, shape, labels, strict=True)):
                if label is not BROADCAST and found != self._sizes.predict(size, label):
                    raise _Mismatch(
                        f"{func} gives size {found} in dimension {dim} where "
                        f"{self._sizes.predict(size, label)} of {size} channels are kept"
                    )
        self._position += 1
        return out
