"""Tensors of a model that are cut for many subnets, most of them together in one op.

A norm has five vectors and scalars, and one op for each of them would take as long as the norm itself. One op therefore
gathers all vectors, and another one copies all scalars. Smallest example: `[scale, shift]` of 8 channels each become
one vector of 16; the subnet of channels 0 and 5 is its positions 0, 5, 8 and 13, split into two.
"""

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from cafenet.space.layout import Cut, IntArray, Layout, num_positions

_Kinds: TypeAlias = list[tuple[torch.dtype, torch.device]]


class Gathering:
    """The plan of which tensors are cut together, which holds as long as their types and devices do.

    Args:
        parameters: Full parameters by name.
        buffers: Full buffers by name.
        layout: Positions of the units in the tensors.
    """

    def __init__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], layout: Layout) -> None:
        tensors = {**parameters, **buffers}
        self._kinds = _kinds(parameters, buffers)
        self.layout = layout
        self.scalars: list[list[str]] = []
        """Names of the scalars of each kind."""
        self.vectors: list[tuple[list[str], list[int], IntArray]] = []
        """For each kind: names, the pattern of each vector, and its start in the concatenated vector."""
        self.others: list[tuple[str, tuple[tuple[int, int], ...], bool]] = []
        """Name, (dimension, pattern) of each cut, and whether the tensor is a buffer."""
        alike: dict[tuple[bool, torch.dtype, torch.device], list[str]] = {}
        for name, tensor in tensors.items():
            dims = layout.axes.get(name, {})
            is_plain = tensor.layout is torch.strided and name not in layout.scales_of
            if is_plain and (tensor.ndim == 0 or (tensor.ndim == 1 and dims)):
                alike.setdefault((tensor.ndim == 0, tensor.dtype, tensor.device), []).append(name)
            else:
                self.others.append((name, tuple(dims.items()), name in buffers))
        for (is_0d, *_), names in alike.items():
            if is_0d:
                self.scalars.append(names)
            else:
                starts = np.cumsum([0, *(tensors[name].shape[0] for name in names[:-1])])
                self.vectors.append((names, [layout.axes[name][0] for name in names], starts))

    def fits(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> bool:
        """Tells whether tensors have the types and devices that the plan was made for.

        Args:
            parameters: Full parameters by name, of the model that the plan was made for.
            buffers: Its full buffers by name.

        Returns:
            True if they do.
        """
        return _kinds(parameters, buffers) == self._kinds

    def of(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> "Gatherer":
        """Prepares tensors to be cut.

        Args:
            parameters: Full parameters by name.
            buffers: Full buffers by name.

        Returns:
            The gatherer, which is out of date as soon as a tensor changes.
        """
        return Gatherer(self, {**parameters, **buffers})


class Gatherer:
    """The current tensors of a model, prepared to be cut for many subnets that run without gradients.

    Args:
        plan: The plan of which tensors are cut together.
        tensors: Full parameters and buffers by name.
    """

    def __init__(self, plan: Gathering, tensors: Mapping[str, Tensor]) -> None:
        self._tensors, self._layout = tensors, plan.layout
        self._scalars = [(names, self._together(names, torch.stack)) for names in plan.scalars]
        self._vectors = [(*each, self._together(each[0], torch.cat)) for each in plan.vectors]
        self._others = [(name, tensors[name], dims, is_buffer) for name, dims, is_buffer in plan.others]
        self._places: dict[Hashable, tuple[Tensor, Sequence[Tensor]]] = {}

    @torch.no_grad()
    def _together(self, names: Sequence[str], join: Callable[[list[Tensor]], Tensor]) -> Tensor:
        return join([self._tensors[name] for name in names])

    def part(self, chosen: tuple[Cut, ...]) -> dict[str, Tensor]:
        """Cuts all tensors.

        Args:
            chosen: One cut per pattern of the layout.

        Returns:
            The cut tensors by name. Buffers are copies, which may be written to. All are valid until the next call,
            which may put the next subnet's values in their place.
        """
        part = dict.fromkeys(self._tensors)  # in the model's order
        for number, (names, together) in enumerate(self._scalars):
            place, parts = self._place(("scalars", number), together, together.shape, torch.unbind)
            place.copy_(together)
            part.update(zip(names, parts, strict=True))
        for number, (names, patterns, starts, together) in enumerate(self._vectors):
            cut = [chosen[pattern].positions for pattern in patterns]
            sizes = [positions.size for positions in cut]
            index = torch.from_numpy(np.concatenate(cut) + np.repeat(starts, sizes)).to(together.device)
            divided = functools.partial(torch.split, split_size_or_sections=sizes)
            place, parts = self._place((number, *sizes), together, index.shape, divided)
            torch.index_select(together, 0, index, out=place)
            part.update(zip(names, parts, strict=True))
        for name, tensor, dims, is_buffer in self._others:
            for dim, pattern in dims:
                tensor = chosen[pattern].apply(tensor, dim)
            if name in self._layout.scales_of:
                tensor = scaled(tensor, self._layout, name, chosen)
            part[name] = tensor.clone() if is_buffer else tensor
        return cast(dict[str, Tensor], part)

    def _place(
        self, key: Hashable, like: Tensor, shape: Sequence[int], divided: Callable[[Tensor], Sequence[Tensor]]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """A tensor for the values of a subnet, with its parts: subnets of the same sizes share them, one after another.

        To make the parts takes longer than to write the values.
        """
        if key not in self._places:
            held = like.new_empty(shape)
            self._places[key] = held, divided(held)
        return self._places[key]


def scaled(tensor: Tensor, layout: Layout, name: str, chosen: tuple[Cut, ...]) -> Tensor:
    """Multiplies a cut tensor by the factors that keep the scale of attention.

    Args:
        tensor: The cut tensor.
        layout: Positions of the units in the tensors.
        name: Name of the tensor, which has such factors.
        chosen: One cut per pattern of the layout.

    Returns:
        The tensor times its factors.
    """
    for slot in layout.scales_of[name]:
        share = chosen[slot.pattern].positions.size / num_positions(layout.patterns[slot.pattern])
        if share < 1:
            pattern = layout.axes.get(name, {}).get(slot.dim)
            kept = np.arange(slot.mask.size) if pattern is None else chosen[pattern].positions
            factors = torch.from_numpy(slot.factors(kept, share)).to(tensor)
            tensor = tensor * factors.view(-1, *[1] * (tensor.ndim - 1 - slot.dim))
    return tensor


def _kinds(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> _Kinds:
    return [(tensor.dtype, tensor.device) for held in (parameters, buffers) for tensor in held.values()]
