"""Views that cut a dimension of channels in several, and the choice of the part that varies.

Smallest example: `qkv(x).view(n, t, 3, 2, 4)` cuts 24 channels into queries, keys and values, each with 2 heads of 4
features. A label is one array a dimension, so one of the three parts varies: usually the largest, which is the features
of a head. The product of queries and keys sums over these, so they stay whole, and then the heads may vary. This is
known only after the product, so the model is traced again with another part for this cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cafenet.tracing.atoms import AtomArray, Atoms

CutKey: TypeAlias = tuple[str, tuple[int, ...]]
"""A module's path and the sizes into which its code cuts channels. Equal cuts of one module vary in the same part."""


@dataclass(frozen=True, eq=False)
class Cut:
    """One view that cut a dimension of channels in several."""

    key: CutKey
    """The module and the sizes."""
    part: int
    """The part that varies, as an index into the sizes."""
    label: AtomArray
    """The channels of this part."""


class PartChoice:
    """The search for the part that varies of every cut, over repeated traces."""

    def __init__(self) -> None:
        """Begins with the usual part of every cut."""
        self.parts: dict[CutKey, int] = {}
        self._tried: dict[CutKey, list[int]] = {}

    def improve(self, atoms: Atoms, cuts: Sequence[Cut], unfit: Sequence[AtomArray]) -> bool:
        """Chooses another part for every cut whose part stays whole because of its use.

        Args:
            atoms: Everything that the last trace has recorded.
            cuts: The cuts of the last trace.
            unfit: Labels that stayed whole because of their use.

        Returns:
            Whether a choice has changed, so that another trace is worthwhile.
        """
        if not cuts or not unfit:
            return False
        component = atoms.components()
        whole = np.zeros(int(component.max()) + 1, dtype=bool)
        for label in unfit:
            whole[component[label[label >= 0]]] = True
        failed = {cut.key: cut.part for cut in cuts if whole[component[cut.label[cut.label >= 0]]].any()}
        return any([self._try_next(key, part) for key, part in failed.items()])

    def _try_next(self, key: CutKey, failed: int) -> bool:
        """Chooses the nearest untried part, those to the left first, or the usual part again if all have failed."""
        tried = self._tried.setdefault(key, [])
        if tried and tried[0] == failed and len(tried) > 1:
            return False  # all parts have failed, and the usual part was chosen again
        tried.append(failed)
        untried = [part for part, size in enumerate(key[1]) if size > 1 and part not in tried]
        untried.sort(key=lambda part: (part > tried[0], abs(part - tried[0])))
        self.parts[key] = untried[0] if untried else tried[0]
        return self.parts[key] != failed
