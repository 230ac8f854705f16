"""Example inputs of models by name: an image for most, and for models of transformers what their forward takes."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.errors import ModelNameError
from cafenet.models.load import default_input_size

_NUM_TOKENS = 128
"""Length of a text, if the model has positions for it."""
_AUDIO_SAMPLES = 16_000
"""One second of sound."""


def example_inputs_of(name: str, model: nn.Module, size: tuple[int, ...] | None = None) -> Any:
    """Make inputs for one example that a model by name can be traced with.

    Args:
        name: Name of the model, as for `load_model`.
        model: The model.
        size: Size of the main input without the batch dimension; by default that which the model was published for,
            and 128 tokens for a model of texts.

    Returns:
        A tensor, or for a model of transformers a dict of keyword arguments.

    Raises:
        ModelNameError: If a model of transformers reads something else than texts, images or sound.

    Example:
        >>> import cafenet
        >>> from cafenet.models import example_inputs_of
        >>> model = cafenet.load_model("cafenet:plain_cnn")
        >>> example_inputs_of("cafenet:plain_cnn", model).shape
        torch.Size([1, 3, 32, 32])
    """
    generator = torch.Generator().manual_seed(0)
    if not name.startswith("hf:"):
        return torch.randn(1, *(size or default_input_size(name)), generator=generator)
    main = str(getattr(model, "main_input_name", "input_ids"))
    takes = inspect.signature(model.forward).parameters
    inputs = {main: _input(name, model.config, main, size, generator)}
    if main == "input_ids" and "pixel_values" in takes and hasattr(model.config, "vision_config"):
        inputs["pixel_values"] = _input(name, model.config, "pixel_values", None, generator)
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _tokens(model.config, None, generator)
    return inputs | ({"use_cache": False} if "use_cache" in takes else {})


def main_input(inputs: Any) -> Tensor:
    """Return the tensor that the size of example inputs refers to.

    Args:
        inputs: Example inputs from `example_inputs_of`.

    Returns:
        The tensor itself, or the first of a dict.
    """
    tensor: Tensor = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
    return tensor


def _input(name: str, config: Any, kind: str, size: tuple[int, ...] | None, generator: torch.Generator) -> Tensor:
    """Return an input of one kind, in the size that the config says."""
    if kind == "input_ids":
        return _tokens(config, size, generator)
    if kind == "pixel_values":
        shape = size or _image_size(getattr(config, "vision_config", config))
    elif kind == "input_features":
        shape = size or (config.num_mel_bins, 2 * config.max_source_positions)
    elif kind == "input_values":
        shape = size or (_AUDIO_SAMPLES,)
    else:
        raise ModelNameError(
            f"the inputs of {name} must be texts, images or sound, but it reads {kind!r}; trace it in Python, with "
            "cafenet.trace(model, inputs)"
        )
    return torch.randn(1, *shape, generator=generator)


def _tokens(config: Any, size: tuple[int, ...] | None, generator: torch.Generator) -> Tensor:
    """Return numbers of words; a text is at most as long as the model has positions, less the two that some skip."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = next((getattr(text, key) for key in ("max_position_embeddings", "n_positions") if hasattr(text, key)), None)
    length = min(_NUM_TOKENS, max(1, most - 2)) if isinstance(most, int) and most > 0 else _NUM_TOKENS
    return torch.randint(text.vocab_size, (1, *(size or (length,))), generator=generator)


def _image_size(config: Any) -> tuple[int, ...]:
    """Return channels, height and width of the images that a config says."""
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return getattr(config, "num_channels", 3), height, width
