"""The graph of a model, from which every file for a runtime is written."""

from typing import Any

import torch
from torch import nn

from cafenet.errors import ExportError, first_line
from cafenet.modules.inputs import copied
from cafenet.runtimes.session import Inputs


def exported(model: nn.Module, inputs: Inputs, dynamic_shapes: Any = None) -> torch.export.ExportedProgram:
    """Follow a model's forward with `torch.export`.

    Args:
        model: The model in eval mode.
        inputs: Positional and keyword arguments of its forward.
        dynamic_shapes: The dimensions that may vary, as `torch.export.export` takes them.

    Returns:
        The program.

    Raises:
        ExportError: If the forward is too dynamic.
    """
    try:
        return torch.export.export(model, *copied(inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export has many ways to say that a forward is too dynamic
        raise ExportError(
            f"torch.export cannot follow this model's forward: {first_line(error)}; use a .pt file"
        ) from error
