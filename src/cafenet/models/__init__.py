"""Models by name: those of torchvision, timm and transformers, the paper's variants, and the user's own."""

from cafenet.models.example_inputs import example_inputs_of, main_input
from cafenet.models.load import default_input_size, load_model, published_input_size
from cafenet.models.registry import frozen_by_default
from cafenet.models.scaling import scale_to_flops
from cafenet.models.weights import load_weights

__all__ = [
    "default_input_size",
    "example_inputs_of",
    "frozen_by_default",
    "load_model",
    "load_weights",
    "main_input",
    "published_input_size",
    "scale_to_flops",
]
