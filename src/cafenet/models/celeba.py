"""Networks for the 40 attributes of CelebA, at 224x160 (paper, face attributes).

ResNet-18 has 11.2M parameters and 1.3G FLOPs, MobileNetV2 2.2M (2.28M, if rounded) and 213M.

The only linear layer makes the outputs, so it is not searched, as in the paper (appendix a9). Targets are 40 zeros and
ones; train with the loss `bce`.
"""

from torch import nn

from cafenet.models import mobilenet_v2 as network
from cafenet.models.resnet import resnet

NUM_ATTRIBUTES = 40
"""Number of attributes of CelebA."""
INPUT_SIZE = (3, 224, 160)
"""Channels, height and width of the input."""


def resnet18(num_classes: int = NUM_ATTRIBUTES, width: float = 1.0) -> nn.Sequential:
    """Build a ResNet-18 with one output per attribute.

    Args:
        num_classes: Number of attributes.
        width: Factor on the width of every layer.

    Returns:
        The network.
    """
    return resnet(18, num_classes, width)


def mobilenet_v2(num_classes: int = NUM_ATTRIBUTES, width: float = 1.0, dropout: float = 0.2) -> nn.Sequential:
    """Build a MobileNetV2 with one output per attribute.

    Args:
        num_classes: Number of attributes.
        width: Factor on the width of every layer.
        dropout: Dropout rate before the last layer.

    Returns:
        The network.
    """
    return network.mobilenet_v2(num_classes, width, dropout=dropout)
