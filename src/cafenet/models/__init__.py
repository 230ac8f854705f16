"""Models by name: torchvision's, timm's, and the user's own."""

from cafenet.models.names import default_input_size, load_model

__all__ = ["default_input_size", "load_model"]
