"""Modes that repeat the ops of a trace at other widths, and note those whose shapes differ from the prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cafenet.space.layout import IntArray
from cafenet.tracing.calls import READ, Record
from cafenet.tracing.grouping import Grouping
from cafenet.tracing.recording import BROADCAST, tensors_in
from cafenet.tracing.size_ties import SizeTie, asked_sizes, find_ties
from cafenet.tracing.stand_in import size_depends_on_values, stand_in
from cafenet.tracing.values import Values, has_value
from cafenet.tracing.watching import EagerMode, ModulePaths, factors_in, on_one_device

# Whether a reshape copies first depends on strides, and so on whether a dimension has the size 1.
_COPY = torch.ops.aten.clone.default
_RESHAPES = {torch.ops.aten._unsafe_view.default: torch.ops.aten.view.default}


_VIEWS = {*_RESHAPES, *_RESHAPES.values()}
_SAME_CALL = {(torch.ops.aten.slice.Tensor, torch.ops.aten.alias.default)}  # x[:, :64], with 64 channels or fewer


_RESHAPE_CALLS = {torch.reshape, Tensor.reshape}


class Mismatch(Exception):
    """Raised if the check run departs from the trace."""


class _OtherValues(Exception):
    """Raised if a size depends on values, which differ at other widths; the widths themselves are not at fault."""


@dataclass(frozen=True, eq=False)
class Fault:
    """An error of the check run, its place, and the op of the trace at which it happened (None after the last op)."""

    reason: str
    """First line of the error."""
    path: str
    """Name of the module whose forward ran."""
    record: Record | None
    """The op of the trace, or None after the last op."""


class Sizes:
    """Predicts the size of a labelled dimension when only some units are kept.

    Args:
        grouping: The units of all atoms.
        keep: Whether each unit is kept, one flag per unit; the last one is for atoms without a unit.
    """

    def __init__(self, grouping: Grouping, keep: Any) -> None:
        self._units, self._keep = grouping.unit_of_atom, keep
        self._known: dict[int, int] = {}

    def predict(self, size: int, label: IntArray | None) -> int:
        """Predicts one size.

        Args:
            size: Size of the dimension in the trace.
            label: Atoms of the dimension, or None if its size is fixed.

        Returns:
            The size at the other widths.
        """
        if label is None:
            return size
        if id(label) not in self._known:
            kept = self._keep[np.where(label >= 0, self._units[label], -1)]
            self._known[id(label)] = int((kept if kept.ndim == 1 else kept.all(axis=0)).sum())
        return self._known[id(label)]


class CompareMode(EagerMode):
    """Lets the ops run, and notes those that have another shape than in the trace; stops if other ops run.

    Args:
        records: The ops of the trace, in order.
        sizes: The predicted sizes.
        paths: Names of the modules that run.
        values: Values of meta tensors, if there are any.
        seed: Seed of random ops.
        is_replay: Whether it is known that the code must read the numbers of the trace.
    """

    def __init__(
        self,
        records: Sequence[Record],
        sizes: Sizes,
        paths: ModulePaths,
        values: Values | None,
        seed: int,
        is_replay: bool,
    ) -> None:
        super().__init__(values, seed)
        self._is_replay = is_replay
        self._records = [record for record in records if record.func is not _COPY]
        self._sizes, self._paths = sizes, paths
        self._position = 0
        self.path = ""
        self.faults: list[Fault] = []
        self.ties: list[SizeTie] = []
        self.changed: list[tuple[Record, float | None]] = []
        """Ops whose factors are others than in the trace, with the ratio to before (None if they are no product)."""
        self._is_standing_in = False

    @property
    def failing(self) -> Record | None:
        """The op of the trace that is due now, or None after the last one."""
        return self._records[self._position] if self._position < len(self._records) else None

    def expect_end(self) -> None:
        """Checks that all ops of the trace have run.

        Raises:
            Mismatch: If some have not.
        """
        if self._position < len(self._records):
            raise Mismatch("other ops run at other widths (fewer than at full width)")

    def note(self, error: Exception) -> None:
        """Records an error at the current op.

        Args:
            error: The error.
        """
        reason = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__}: {error}"
        line = reason.strip().splitlines()[0] if reason.strip() else type(error).__name__
        self.faults.append(Fault(line, self.path, self.failing))

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
            other = Mismatch(f"other ops run at other widths ({func})")
            if record is not None and (record.func, func) in _SAME_CALL:
                return self._go_on(other, record.func, tensors, ())
            raise other
        if func is READ and self._is_replay:
            self._position += 1
            return record.read
        out: Any = None
        try:
            if record.factors:
                self._compare_factors(factors_in(args, kwargs), record)
            out = self.execute(func, args, kwargs, tensors)
            self._compare(func, out, record)
        except Exception as error:
            if func in _VIEWS:
                self.explain(asked_sizes(args, kwargs))
            return self._go_on(error, func, tensors, list(tensors_in((out,))))
        self._position += 1
        return out

    def explain(self, asked: Sequence[int]) -> None:
        """Looks for the dimensions from which the sizes of a failing reshape were taken.

        Args:
            asked: Sizes that the reshape asked for.
        """
        record = self.failing
        if record is not None:
            self.ties += find_ties(asked, record, self._records[: self._position], self._sizes.predict)

    def go_on_past_reshape(self, error: Exception, inputs: Sequence[Tensor], asked: Sequence[int]) -> Any:
        """Continues after a reshape that raised before any op ran.

        Args:
            error: The error that it raised.
            inputs: Tensors that it was given.
            asked: Sizes that it asked for.

        Returns:
            A stand-in for its result.
        """
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

    def _compare_factors(self, found: tuple[float, ...], record: Record) -> None:
        """Notes a factor that the code computes from sizes, as the scale of attention."""
        if found != record.factors:
            ratio = (
                found[0] / record.factors[0] if len(found) == len(record.factors) == 1 and record.factors[0] else None
            )
            is_product = record.func.overloadpacket in (torch.ops.aten.mul, torch.ops.aten.div)
            if ratio and record.func.overloadpacket is torch.ops.aten.div:
                ratio = 1 / ratio
            self.changed.append((record, ratio if is_product else None))

    def _compare(self, func: Any, out: Any, record: Record) -> None:
        for tensor, shape, labels in zip(tensors_in((out,)), record.shapes, record.outputs, strict=True):
            for dim, (found, size, label) in enumerate(zip(tensor.shape, shape, labels, strict=True)):
                if label is not BROADCAST and found != self._sizes.predict(size, label):
                    if label is None and size_depends_on_values(func):
                        raise _OtherValues
                    raise Mismatch(
                        f"{func} gives size {found} in dimension {dim} where "
                        f"{self._sizes.predict(size, label)} of {size} channels are kept"
                    )


def _is_broadcast(record: Record) -> bool:
    """Whether the size of a result depends on what it will meet later, so that it cannot be predicted here."""
    return any(label is BROADCAST for labels in record.outputs for label in labels)


class ReshapeMode(TorchFunctionMode):
    """Continues after a `reshape` that raises: it rejects impossible sizes before it runs any op.

    Args:
        mode: The mode that knows the op that is due.
    """

    def __init__(self, mode: CompareMode) -> None:
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
