"""A plain convolutional network that is small enough for a CPU, for the demo and for first experiments."""

from collections.abc import Sequence

from torch import nn

from cafenet.models.scaling import scale_channels

CHANNELS = (16, 24, 32, 48, 64)
"""Channels of each convolution at width 1."""


def plain_cnn(
    num_classes: int = 10, width: float = 1.0, in_channels: int = 1, channels: Sequence[int] = CHANNELS
) -> nn.Module:
    """Build 3x3 convolutions with batch norm, every other one with stride 2, then an average pool and a classifier.

    With the default channels and one 28x28 input channel it has 4.2M FLOPs and 53K parameters.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        in_channels: Number of channels of the images.
        channels: Channels of each convolution at width 1.

    Returns:
        The network.
    """
    layers: list[nn.Module] = []
    before = in_channels
    for number, each in enumerate(channels):
        after = scale_channels(each, width, divisor=1)
        layers += [
            nn.Conv2d(before, after, 3, stride=1 + number % 2, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))
