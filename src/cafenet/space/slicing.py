"""Runs of the user's own forward on a part of its channels, with sliced tensors and temporarily changed attributes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor, nn

from cafenet.modules.calling import placed, run_with
from cafenet.modules.recomputing import recomputed_in
from cafenet.modules.snapshot import unchanged
from cafenet.modules.tensors import tensor_places
from cafenet.space.gathering import Gatherer, Gathering, scaled
from cafenet.space.layout import AttributeSlot, Cut, Layout, Subnet, cuts

AttributeValues: TypeAlias = dict[tuple[str, str], int | tuple[int, ...]]
"""Values of attributes by (module path, attribute name)."""


def slice_tensors(tensors: Mapping[str, Tensor], layout: Layout, chosen: tuple[Cut, ...]) -> dict[str, Tensor]:
    """Cuts every tensor that the layout mentions; the others are passed on unchanged.

    Args:
        tensors: Full tensors by name.
        layout: Positions of the units in the tensors.
        chosen: One cut per pattern of the layout.

    Returns:
        The cut tensors, as views if that is possible.
    """
    sliced = {name: _sliced(tensor, layout.axes.get(name, {}), chosen) for name, tensor in tensors.items()}
    for name in layout.scales_of.keys() & sliced.keys():
        sliced[name] = scaled(sliced[name], layout, name, chosen)
    return sliced


def _sliced(tensor: Tensor, dims: Mapping[int, int], chosen: tuple[Cut, ...]) -> Tensor:
    for dim, pattern in dims.items():
        tensor = chosen[pattern].apply(tensor, dim)
    return tensor


def attribute_values(layout: Layout, chosen: tuple[Cut, ...]) -> AttributeValues:
    """Computes the values of all module attributes that depend on widths.

    Args:
        layout: The layout, which lists these attributes.
        chosen: One cut per pattern of the layout.

    Returns:
        The values by (module path, attribute name).
    """
    values: AttributeValues = {}
    for slot in layout.attributes:
        key = (slot.module, slot.attribute)
        values[key] = slot.value(chosen[slot.pattern].positions.size, values.get(key))
    return values


class Harness:
    """A model prepared to run many subnets: it knows the places of all tensors and of the attributes that follow
    widths.

    Args:
        model: The full-size model.
        layout: Positions of the units in the model.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        self.model, self.layout = model, layout
        self._places = tensor_places(model)
        modules = dict(model.named_modules(remove_duplicate=False))
        slots = [(modules[slot.module], slot) for slot in layout.attributes]
        plain = [(module.__dict__, slot) for module, slot in slots if _is_plain(module, slot)]
        self._plain = [(held, s.attribute, s.pattern, s.factor, s.divisor) for held, s in plain]
        self._others = [(module, slot) for module, slot in slots if not _is_plain(module, slot)]
        first = {name: (name, held, key) for name, held, key in reversed(self._places)}
        self._parameters = [first[name] for name, _ in model.named_parameters()]
        self._buffers = [first[name] for name, _ in model.named_buffers()]
        self._gathering: Gathering | None = None

    def parameters(self) -> dict[str, Tensor]:
        """Collects the model's current parameters.

        Returns:
            The parameters by name.
        """
        return {name: held[key] for name, held, key in self._parameters}

    def buffers(self) -> dict[str, Tensor]:
        """Collects the model's current buffers.

        Returns:
            The buffers by name.
        """
        return {name: held[key] for name, held, key in self._buffers}

    def gatherer(self) -> Gatherer:
        """Prepares the model's current tensors to be cut many times, until they change.

        Returns:
            The gatherer, which is out of date as soon as a tensor changes.
        """
        parameters, buffers = self.parameters(), self.buffers()
        if self._gathering is None or not self._gathering.fits(parameters, buffers):
            self._gathering = Gathering(parameters, buffers, self.layout)
        return self._gathering.of(parameters, buffers)

    def run(
        self,
        tensors: dict[str, Tensor],
        chosen: tuple[Cut, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        *,
        keep_buffers: bool = True,
    ) -> Any:
        """Runs the model's own forward on sliced tensors, with attributes that match.

        Args:
            tensors: Tensors that were sliced by the same cuts.
            chosen: One cut per pattern of the layout.
            args: Positional arguments of the forward.
            kwargs: Keyword arguments of the forward.
            keep_buffers: Whether buffers that the forward assigns anew are put into `tensors`.

        Returns:
            The output of the forward.
        """
        with self.patched(chosen), recomputed_in(lambda: self._as_in_run(tensors, chosen)):
            return run_with(self.model, tensors, args, kwargs, self._places, keep_buffers=keep_buffers)

    @contextmanager
    def _as_in_run(self, tensors: dict[str, Tensor], chosen: tuple[Cut, ...]) -> Iterator[None]:
        """Puts the tensors and attributes of a run in place again, for a checkpoint that runs a part of it again."""
        with self.patched(chosen), placed(tensors, self._places):
            yield

    @contextmanager
    def patched(self, chosen: tuple[Cut, ...]) -> Iterator[None]:
        """Sets the attributes that follow widths inside the block, and restores them after it.

        Args:
            chosen: One cut per pattern of the layout.
        """
        plain, others = self._plain, self._others
        before_plain = [held[attribute] for held, attribute, *_ in plain]
        before = [getattr(module, slot.attribute) for module, slot in others]
        sizes = [cut.positions.size for cut in chosen]
        try:
            for held, attribute, pattern, factor, divisor in plain:
                held[attribute] = sizes[pattern] * factor // divisor
            for module, slot in others:
                so_far = getattr(module, slot.attribute) if slot.index is not None else None
                setattr(module, slot.attribute, slot.value(sizes[slot.pattern], so_far))
            yield
        finally:
            for (held, attribute, *_), number in zip(plain, before_plain, strict=True):
                held[attribute] = number
            for (module, slot), value in zip(others, before, strict=True):
                setattr(module, slot.attribute, value)


def _is_plain(module: nn.Module, slot: AttributeSlot) -> bool:
    """Whether an attribute is one number in the module's dictionary, where it is set in a tenth of the time."""
    return slot.index is None and not slot.as_tuple and slot.attribute in vars(module)


def run_subnet(
    model: nn.Module, layout: Layout, subnet: Subnet, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Runs a model with only the channels of a subnet. Weights are shared, and buffers are copies.

    Args:
        model: The full-size model.
        layout: Positions of the units in the model.
        subnet: The units to keep.
        args: Positional arguments of the forward.
        kwargs: Keyword arguments of the forward.

    Returns:
        The output of the forward.
    """
    harness, chosen = Harness(model, layout), cuts(layout, subnet)
    buffers = {name: buffer.clone() for name, buffer in harness.buffers().items()}
    with unchanged(model):  # a forward may cache a table for this width, which would be wrong for the next width
        return harness.run(slice_tensors({**harness.parameters(), **buffers}, layout, chosen), chosen, args, kwargs)
