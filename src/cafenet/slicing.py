"""Running the user's own forward on a part of its channels: sliced tensors in, patched attributes for the moment."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.func import functional_call

from cafenet.layout import Cut, Layout, Subnet, cuts

AttributeValues: TypeAlias = dict[tuple[str, str], int | tuple[int]]
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
    return {
        (slot.module, slot.attribute): slot.value(chosen[slot.pattern].positions.size) for slot in layout.attributes
    }


@contextmanager
def patched_attributes(model: nn.Module, values: AttributeValues) -> Iterator[None]:
    """Set module attributes inside the block and restore them after it."""
    before: list[tuple[nn.Module, str, Any]] = []
    try:
        for (path, attribute), value in values.items():
            module = model.get_submodule(path)
            before.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, value)
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


def run_subnet(
    model: nn.Module, layout: Layout, subnet: Subnet, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The model's output with only the subnet's channels; weights are shared, buffers are clones."""
    chosen = cuts(layout, subnet)
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    tensors.update((name, buffer.clone()) for name, buffer in model.named_buffers())
    with patched_attributes(model, attribute_values(layout, chosen)):
        return functional_call(model, slice_tensors(tensors, layout, chosen), args, dict(kwargs or {}))
