"""Deep copies of models."""

import copy
from typing import Any

from torch import nn

from cafenet.errors import CafeNetError, first_line
from cafenet.modules.tensors import tensors_of

RECORD = "_cafenet_record"
"""Name of the attribute in which a slim model holds its SlimRecord (see `extract`)."""


def copy_of(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Makes a deep copy, even of a model that keeps a result of its forward or of a hook, which `deepcopy` refuses.

    Args:
        model: The model.
        memo: Replacements of objects by their ids, as for `deepcopy`.

    Returns:
        The copy.

    Raises:
        CafeNetError: If the model cannot be copied.
    """
    memo = {} if memo is None else memo
    for module in model.modules():
        for tensor in tensors_of(vars(module)):
            if not tensor.is_leaf:
                memo.setdefault(id(tensor), tensor.detach().clone())
    try:
        copied = copy.deepcopy(model, memo)
    except Exception as error:  # whatever an attribute's class raises
        raise CafeNetError(
            f"the model must be copied by copy.deepcopy, but that raised {type(error).__name__}: {first_line(error)}; "
            "keep such objects (locks, open files, processes) outside of the model's modules, or give the class that "
            "holds them a __deepcopy__ of its own"
        ) from error
    if hasattr(model, RECORD):  # a torch.fx.GraphModule copies only attributes that its graph names
        setattr(copied, RECORD, getattr(model, RECORD))
    return copied
