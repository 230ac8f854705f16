"""The parts of dict batches, and of the outputs of the models that take them, that a trace needs."""

from typing import Any

import torch
from torch import nn

from cafenet.modules.batches import without_labels
from cafenet.modules.calling import training_mode
from cafenet.modules.inputs import call_arguments
from cafenet.modules.outputs import has_outputs
from cafenet.modules.snapshot import unchanged


def inputs_to_trace(model: nn.Module, inputs: Any) -> Any:
    """Return inputs without labels if the model runs without them, so that costs and exports hold no loss.

    Args:
        model: The model; it is not changed.
        inputs: Inputs of one example, perhaps a dict with labels.

    Returns:
        The inputs without labels; with them for a model that makes inputs of them, as encoder-decoders do.
    """
    bare = without_labels(inputs)
    if not isinstance(inputs, dict) or len(bare) == len(inputs):
        return inputs
    try:
        _run(model, bare)
    except Exception:  # whatever the model's own code raises; with labels it says so again, if they are not missing
        return inputs
    return bare


def outputs_that_count(model: nn.Module, inputs: Any) -> str | None:
    """Return the outputs that keep their sizes in the search of a model that computes its own loss.

    Args:
        model: The model; it is not changed.
        inputs: Inputs of one example.

    Returns:
        "logits" if the model returns them: hidden states and caches beside them may shrink. None, for all, if not.
    """
    try:
        return "logits" if has_outputs(_run(model, inputs), ["logits"]) else None
    except Exception:  # the trace that follows explains it
        return None


def _run(model: nn.Module, inputs: Any) -> Any:
    """Run a model in eval mode."""
    args, kwargs = call_arguments(inputs)
    with unchanged(model), training_mode(model, False), torch.no_grad():
        return model(*args, **kwargs)
