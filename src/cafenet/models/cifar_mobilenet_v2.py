"""MobileNetV2 for images of about 32x32: 2.24M parameters and 296.5M FLOPs (paper, CIFAR-10 results)."""

from torch import nn

from cafenet.models import mobilenet_v2 as network

CIFAR_STRIDES = (1, 1, 1, 2, 1, 2, 1)
"""Stride of the first block of each stage. The image is halved twice, not five times as for ImageNet: 32x32 ends as
8x8."""


def mobilenet_v2(
    num_classes: int = 10, width: float = 1.0, in_channels: int = 3, dropout: float = 0.2
) -> nn.Sequential:
    """Build the network.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer; 0.5 halves them, including the last convolution.
        in_channels: Number of channels of the images.
        dropout: Dropout rate before the last layer.

    Returns:
        The network.
    """
    return network.mobilenet_v2(num_classes, width, in_channels, dropout, 1, CIFAR_STRIDES)
