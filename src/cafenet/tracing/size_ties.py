"""Ties that the check run proposes, where a model's code takes a size from another tensor than the one that it shapes.

Smallest example: attention with 2 heads of 4 features on a stream of 8 ends in `out.reshape(n, t, x.shape[-1])`. The
trace has two groups, the heads and the stream. The check run keeps 1 head and 5 features of the stream, so the code
asks for 5 where the trace predicts 4 of 8 channels. A label of 8 channels of which 5 are kept is that of the stream. If
both labels are tied, a head and its 4 features of the stream go together, and the code is right at every width.

A tie leaves less freedom than separate groups, but more than a frozen layer, and it cannot be wrong: the check run is
repeated with it, and it is taken back if groups that it ties are still at fault.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cafenet.tracing.atoms import FIXED, AtomArray, DimLabel
from cafenet.tracing.calls import Record
from cafenet.tracing.recording import BROADCAST

Predict = Callable[[int, DimLabel], int]


@dataclass(frozen=True, eq=False)
class SizeTie:
    """Two labels of one length that the code gives the same size."""

    label: AtomArray
    """The channels of the dimension that was shaped."""
    source: AtomArray
    """The channels of the dimension from which the code took the size."""

    @property
    def key(self) -> bytes:
        """Text that is equal for all ties of the same channels."""
        return self.label.tobytes() + b"|" + self.source.tobytes()

    def is_new(self, component: AtomArray) -> bool:
        """Whether the tie joins channels that are not kept or dropped together anyway.

        Args:
            component: The unit of every atom.

        Returns:
            True if some channel would get a new companion.
        """
        return bool((component[self.label] != component[self.source]).any())


def asked_sizes(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Finds the sizes that a call of `view` or `reshape` was given.

    Args:
        args: Positional arguments, with the tensor first.
        kwargs: Keyword arguments.

    Returns:
        The sizes, in which -1 stands for the rest.
    """
    given = kwargs.get("shape", kwargs.get("size", args[1:]))
    flat = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    return tuple(int(size) for size in flat) if all(isinstance(size, int) for size in flat) else ()


def find_ties(asked: Sequence[int], record: Record, before: Sequence[Record], predict: Predict) -> list[SizeTie]:
    """Compares the sizes that a reshape was given with those that the trace predicts.

    Args:
        asked: The sizes that the code asked for.
        record: The reshape in the trace.
        before: The ops of the trace before it.
        predict: Function that predicts the kept size of a dimension.

    Returns:
        A tie for every dimension whose size is that of an earlier one with as many channels.
    """
    if len(record.shapes) != 1 or len(asked) != len(record.shapes[0]):
        return []
    ties = []
    for wanted, size, label in zip(asked, record.shapes[0], record.outputs[0], strict=True):
        if wanted in (-1, size, predict(size, label)) or not _varies(label):
            continue
        fitting = (each for each in _labels_before(before, size) if predict(size, each) == wanted)
        source = next(fitting, None)
        if source is not None and label is not None:
            ties.append(SizeTie(label, source))
    return ties


def _labels_before(before: Sequence[Record], size: int) -> Iterable[AtomArray]:
    for record in reversed(before):
        for label in (label for labels in (*record.outputs, *record.inputs) for label in labels):
            if label is not None and label.size == size and _varies(label):
                yield label


def _varies(label: DimLabel) -> bool:
    return label is not None and label is not BROADCAST and not np.any(label == FIXED)
