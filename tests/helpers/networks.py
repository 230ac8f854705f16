"""What the tests of tracing share: the oracle, and short views of a width space."""

from typing import Any

import torch
from torch import Tensor, nn

import cafenet
from cafenet import WidthSpace
from cafenet.errors import TraceError

IMAGE = torch.zeros(1, 3, 8, 8)
TWO_IMAGES = torch.zeros(2, 3, 8, 8)
NUM_CLASSES = 5


def proven(model: nn.Module, inputs: Any, *, masked: bool = True, **options: Any) -> WidthSpace:
    """Trace a model and let the oracle compare sliced, masked and extracted runs and count the slim models.

    The model must come out of it with the same bytes and the very same attributes. Only groups that nothing normalises
    over can be masked: `masked` says that there must be such a group.
    """
    before = contents(model)
    space = cafenet.trace(model, inputs, **options)
    result = cafenet.verify(space, inputs, trials=3)
    assert contents(model) == before
    assert result.problems == []
    assert result.dtype == torch.float64
    assert unexplained(space) == set()
    assert any(not group.mixes for group in space.groups) == masked
    return space


def contents(model: nn.Module) -> dict[str, Any]:
    """Every attribute of every module by identity, and every parameter and buffer by its bytes as well."""
    held = {}
    for path, module in model.named_modules():
        parts = (vars(module), module._parameters, module._buffers, module._modules)
        held |= {f"{path}.{name}": id(value) for part in parts for name, value in part.items()}
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return held | {name: tensor.detach().flatten().view(torch.uint8).tolist() for name, tensor in values.items()}


def sizes(space: WidthSpace) -> dict[str, tuple[int, int]]:
    """Channels and divisor of every group, by name."""
    return {group.name: (group.channels, group.divisor) for group in space.groups}


def reasons(space: WidthSpace) -> dict[str, str]:
    """Why each layer is frozen, by name."""
    return {frozen.name: frozen.reason for frozen in space.frozen}


def unexplained(space: WidthSpace) -> set[str]:
    """Parameters that are neither in a group nor listed by a frozen layer; there must be none."""
    varying = {slot.tensor for group in space.groups for slot in group.slots}
    explained = {name for entry in space.frozen for name in entry.parameters}
    assert not varying & explained
    return {name for name, _ in space.model.named_parameters()} - varying - explained


def slots(space: WidthSpace, group: str) -> set[tuple[str, int]]:
    """The (tensor, dimension) pairs in which a group has channels."""
    return {(slot.tensor, slot.dim) for slot in space.group(group).slots}


def pooled(x: Tensor) -> Tensor:
    """The mean over space: (N, C, ...) becomes (N, C)."""
    return x.flatten(2).mean(2)


class Forward(nn.Module):
    """Layers by name and a function that runs them: `Forward(lambda net, x: net.b(net.a(x)), a=..., b=...)`."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self, *args, **kwargs)


def frozen_reason(model: nn.Module, inputs: Any, layer: str, **options: Any) -> str:
    """Why a layer of a model is frozen, also where nothing else can be searched."""
    try:
        return reasons(cafenet.trace(model, inputs, **options))[layer]
    except TraceError as error:
        lines = dict(line.strip().split(": ", 1) for line in str(error).splitlines()[1:])
        return lines[layer]
