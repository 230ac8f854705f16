"""Description of a width space and its bins as plain values, which is saved with a search for later readers."""

from typing import Any

from torch import Tensor
from torch.nn.modules.conv import _ConvTransposeNd

from cafenet.space.bins import Bins
from cafenet.space.width_group import WidthGroup
from cafenet.space.width_space import WidthSpace


def describe_space(space: WidthSpace, bins: Bins, attributes: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Describes the width groups, their bins and the frozen layers as plain values.

    Args:
        space: The width space.
        bins: The bins of its groups.
        attributes: Names of the attributes if the data is multi-label, or else None.

    Returns:
        A dict that can be written as JSON. Its layers are those whose widths are searched, in the model's order.
    """
    searched = {layer for group in space.groups for layer in _coupled_layers(space, group)}
    return {
        "flops": int(space.flops()),
        "params": int(space.params()),
        "groups": [
            {
                "name": group.name,
                "layers": _coupled_layers(space, group),
                "channels": group.channels,
                "sensitivity": group.sensitivity,
                "bin_size": each.size,
                "num_bins": each.num_bins,
            }
            for group, each in zip(space.groups, bins.groups, strict=True)
        ],
        "layers": [
            {"name": name, "kind": type(module).__name__}
            for name, module in space.model.named_modules()
            if name in searched
        ],
        "frozen": [{"name": each.name, "channels": each.channels, "reason": each.reason} for each in space.frozen],
        "attributes": None if attributes is None else list(attributes),
    }


def _coupled_layers(space: WidthSpace, group: WidthGroup) -> list[str]:
    """Lists the layers whose output channels the group decides."""
    outputs = {
        f"{name}.weight": 1 if isinstance(module, _ConvTransposeNd) else 0
        for name, module in space.model.named_modules()
        if isinstance(getattr(module, "weight", None), Tensor) and module.weight.ndim > 1
    }
    return [slot.tensor.rpartition(".")[0] for slot in group.slots if outputs.get(slot.tensor) == slot.dim]
