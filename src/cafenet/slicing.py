"""Running the user's own forward on a part of its channels: sliced tensors in, patched attributes for the moment."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor, nn

from cafenet.calling import run_with, tensor_places
from cafenet.layout import Cut, Layout, Subnet, cuts
from cafenet.snapshot import unchanged

AttributeValues: TypeAlias = dict[tuple[str, str], int | tuple[int, ...]]
"""Values by (module path, attribute name)."""


def slice_tensors(tensors: Mapping[str, Tensor], layout: Layout, chosen: tuple[Cut, ...]) -> dict[str, Tensor]:
    """The chosen part of every tensor that the layout mentions; the others pass as they are."""
    sliced = {}
    for name, tensor in tensors.items():
        for dim, pattern in layout.axes.get(name, {}).items():
            tensor = chosen[pattern].apply(tensor, dim)
        sliced[name] = tensor
    return sliced


def attribute_values(layout: Layout, chosen: tuple[Cut, ...]) -> AttributeValues:
    """The value of every module attribute that depends on widths."""
    values: AttributeValues = {}
    for slot in layout.attributes:
        key = (slot.module, slot.attribute)
        values[key] = slot.value(chosen[slot.pattern].positions.size, values.get(key))
    return values


class Harness:
    """A model made ready to run many subnets: where its tensors and the attributes that follow widths hang."""

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        self.model, self.layout = model, layout
        self._places = tensor_places(model)
        self._modules = [model.get_submodule(slot.module) for slot in layout.attributes]
        self._parameters = [name for name, _ in model.named_parameters()]
        self._buffers = [name for name, _ in model.named_buffers()]

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters as they are now, by name."""
        return self._now(self._parameters)

    def buffers(self) -> dict[str, Tensor]:
        """The model's buffers as they are now, by name."""
        return self._now(self._buffers)

    def _now(self, names: list[str]) -> dict[str, Tensor]:
        return {name: held[key] for name in names for held, key in self._places[name][:1]}

    def run(
        self,
        tensors: dict[str, Tensor],
        chosen: tuple[Cut, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The model's own forward on tensors that were sliced by the same cuts, with its attributes set to match."""
        with self.patched(chosen):
            return run_with(self.model, tensors, args, kwargs, self._places)

    @contextmanager
    def patched(self, chosen: tuple[Cut, ...]) -> Iterator[None]:
        """Set the attributes that follow widths inside the block, and restore them after it."""
        pairs = list(zip(self._modules, self.layout.attributes, strict=True))
        before = [getattr(module, slot.attribute) for module, slot in pairs]
        try:
            for module, slot in pairs:
                num_kept = chosen[slot.pattern].positions.size
                so_far = getattr(module, slot.attribute) if slot.index is not None else None
                _set(module, slot.attribute, slot.value(num_kept, so_far))
            yield
        finally:
            for (module, slot), value in zip(pairs, before, strict=True):
                _set(module, slot.attribute, value)


def _set(module: nn.Module, attribute: str, value: Any) -> None:
    """Plain attributes go straight into the module's dictionary: nn.Module's own way takes ten times as long."""
    if attribute in module.__dict__:
        module.__dict__[attribute] = value
    else:
        setattr(module, attribute, value)


def run_subnet(
    model: nn.Module, layout: Layout, subnet: Subnet, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The model's output with only the subnet's channels; weights are shared, buffers are clones."""
    harness, chosen = Harness(model, layout), cuts(layout, subnet)
    buffers = {name: buffer.clone() for name, buffer in harness.buffers().items()}
    with unchanged(model):  # a table of this width, kept by the forward, would be taken for that of the next
        return harness.run(slice_tensors({**harness.parameters(), **buffers}, layout, chosen), chosen, args, kwargs)
