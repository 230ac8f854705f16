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
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.modules.calling import call, training_mode
from cafenet.modules.inputs import copied
from cafenet.modules.outputs import chosen_outputs
from cafenet.modules.randomness import fixed_randomness
from cafenet.space.layout import IntArray, Layout, Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors
from cafenet.tracing.atoms import AtomArray, Atoms, Labels
from cafenet.tracing.build import layout_of
from cafenet.tracing.calls import READ, Record
from cafenet.tracing.compare_mode import CompareMode, Fault, Mismatch, ReshapeMode, Sizes
from cafenet.tracing.grouping import Group, Grouping, group_units
from cafenet.tracing.head_sizes import freeze_uneven
from cafenet.tracing.passes import Pass
from cafenet.tracing.recording import BROADCAST, Run
from cafenet.tracing.scales import settle_scales
from cafenet.tracing.size_ties import SizeTie
from cafenet.tracing.watching import ModulePaths

_REMEDY = "to let it, take sizes from x.shape, or as they are from int attributes of the module"


@dataclass(frozen=True, eq=False)
class _Failure:
    """The reason why a check run failed, its place, and the groups that may have caused it."""

    reason: str
    path: str
    suspects: frozenset[int]
    record: Record | None


def find_faults(model: nn.Module, atoms: Atoms, passes: Sequence[Pass]) -> list[SizeTie]:
    """Freezes all groups that the model's code does not let vary in one of the passes.

    Args:
        model: The traced model, which is not changed.
        atoms: Everything that the rules have recorded; the freezes are added to it.
        passes: The passes to repeat with cut groups.

    Returns:
        The ties that the check run has added.
    """
    runs = [each.run for each in passes]
    return [tie for this in passes for tie in _find_faults_in(model, atoms, this, runs)]


def _find_faults_in(model: nn.Module, atoms: Atoms, this: Pass, runs: Sequence[Run]) -> list[SizeTie]:
    tied = _Tied(atoms) if any(run.has_attention for run in runs) else None
    is_replay = False
    for turn in itertools.count():
        grouping = group_units(atoms)
        if not grouping.groups:
            return []
        checker = _Checker(model, this, grouping, layout_of(model, atoms, runs, grouping))
        failures = checker.all_failures(is_replay)
        is_replay = checker.is_replay
        if not failures:
            return tied.ties if tied is not None else []
        if tied is not None and tied.changed(checker.ties, failures, grouping):
            continue
        if this.training and any(checker.failures(()) for _ in range(3)):
            return []  # the pass differs each time, even at full width, so it says nothing about widths
        for number, failure in checker.guilty(failures, thorough=turn > 0).items():
            group = grouping.groups[number]
            atoms.freeze(group.axis.first + group.positions, failure.reason, failure.path)
    return []


def check_sizes(model: nn.Module, atoms: Atoms, passes: Sequence[Pass]) -> bool:
    """Freezes the sizes of heads that the model's code does not let vary. All other widths have been checked before.

    Every run is made twice, with another number of features the second time: heads and features that are kept may by
    accident be as many as what the code computes from other widths.

    Args:
        model: The traced model, which is not changed.
        atoms: The atoms of both traces (see `head_sizes`); the freezes are added to them.
        passes: The passes to repeat with cut groups.

    Returns:
        Whether the sizes that are left may vary. If not, some fault has nothing to do with a size that is known.
    """
    runs = [each.run for each in passes]
    settled = 0
    while settled < len(passes):
        grouping = group_units(atoms)
        if freeze_uneven(atoms, grouping):
            continue
        sizes = {
            number for number, group in enumerate(grouping.groups) if group.axis.first >= (atoms.first_of_sizes or 0)
        }
        if not sizes:
            return True
        checker = _Checker(model, passes[settled], grouping, layout_of(model, atoms, runs, grouping))
        failures = checker.all_failures(False) or checker.with_other_sizes(sizes).all_failures(False)
        guilty = {n: failure for failure in reversed(failures) for n in sorted(failure.suspects & sizes)}
        if failures and not guilty:
            return False
        for number, failure in guilty.items():
            group = grouping.groups[number]
            atoms.freeze(group.axis.first + group.positions, failure.reason, failure.path)
        if not failures and not settle_scales(atoms, runs[settled], checker.changed, checker.predict):
            settled += 1
    return True


class _Tied:
    """The ties of sizes that were tried so far (see `size_ties`)."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self.ties: list[SizeTie] = []
        self._refused: set[bytes] = set()

    def changed(self, proposed: Sequence[SizeTie], failures: Sequence[_Failure], grouping: Grouping) -> bool:
        """Adds the ties that are new, or takes back those whose groups are at fault all the same.

        Returns:
            Whether the check run must be repeated before any group is frozen.
        """
        new = [tie for tie in proposed if tie.is_new(grouping.component) and tie.key not in self._refused]
        for tie in new:
            self.ties.append(tie)
            self._atoms.tie(tie.label, tie.source, "", "")
        if new:
            return True
        suspects = set().union(*(failure.suspects for failure in failures))
        wrong = [tie for tie in self.ties if not suspects.isdisjoint(_groups_of_label(grouping, tie.label))]
        for tie in wrong:
            self._refused.add(tie.key)
            self.ties.remove(tie)
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
        self.changed: list[tuple[Record, float | None]] = []
        """Ops of the last run whose factors are others than in the trace."""
        self.is_replay = False
        """Whether the model's code reads the numbers of the trace from tensors, not those of the run."""

    def with_other_sizes(self, sizes: set[int]) -> "_Checker":
        """Copies the checker with another number of features in the groups that are sizes of heads."""
        other = copy(self)
        other._kept = list(self._kept)
        for number in sizes:
            size, num_kept = self._grouping.groups[number].units.size, self._kept[number].size
            num_other = next((num for num in (size - 1, size - 2) if num not in (num_kept, 1) and num > 0), num_kept)
            other._kept[number] = np.arange(size - num_other, size)
        return other

    def predict(self, label: AtomArray) -> float:
        """Predicts the share of the features of a head that are kept if all groups are cut."""
        subnet = Subnet(tuple(self._kept))
        sizes = Sizes(self._grouping, subnet.keeps(self._layout))
        return sizes.predict(label.size, label) / float(label.size)

    def all_failures(self, is_replay: bool) -> list[_Failure]:
        """Runs the model with all groups cut.

        Code may take sizes from values: the mask of a box that was found is as large as the box. Values differ at other
        widths, and the widths are not at fault. If a fault is gone where the code reads the numbers of the trace, it
        goes on reading these.

        Args:
            is_replay: Whether it is known that the code must read the numbers of the trace.
        """
        everything = range(len(self._grouping.groups))
        self.is_replay = is_replay
        failures = self.failures(everything)
        if is_replay or not failures or not any(record.func is READ for record in self._pass.run.records):
            return failures
        self.is_replay = True
        again = self.failures(everything)
        self.is_replay = bool({each.record for each in failures} - {each.record for each in again})
        return again if self.is_replay else failures

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
        sizes = Sizes(self._grouping, subnet.keeps(self._layout))
        mode = CompareMode(this.run.records, sizes, paths, values, this.seed, self.is_replay)
        try:
            with (
                torch.no_grad(),
                fixed_randomness(this.seed),
                training_mode(self._model, this.training),
                self._harness.patched(chosen),
                paths.watching(),
                mode,
                ReshapeMode(mode),
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
        self.changed = mode.changed
        return [
            _Failure(
                f"does not let its width vary: {fault.reason}; {_REMEDY}",
                fault.path,
                self._suspects(fault, cut),
                fault.record,
            )
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

    def _suspects(self, fault: Fault, cut: Sequence[int]) -> frozenset[int]:
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
        raise Mismatch(f"the model's outputs have sizes {found} instead of {list(shapes)}")
