"""VGG-19 with batch norm for images of about 32x32: 20.0M parameters and 399M FLOPs (paper, CIFAR-10 results).

The network has the sixteen convolutions of the original, four poolings between them, an average pool and one linear
layer, as in the pruning literature on CIFAR-10. Images may have any size from 16x16 up. VGG-11, with eight
convolutions, is for small experiments: narrow networks as deep as VGG-19 hardly train in a few epochs.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from cafenet.models.scaling import scale_channels

_VGG19 = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)
_VGG11 = ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2)


def vgg19_bn(num_classes: int = 10, width: float = 1.0, in_channels: int = 3) -> nn.Sequential:
    """Build VGG-19; `width=0.25` has 16, 32, 64 and 128 channels in place of the original's 64 to 512.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        in_channels: Number of channels of the images.

    Returns:
        The network.
    """
    return _vgg(_VGG19, num_classes, width, in_channels)


def vgg11_bn(num_classes: int = 10, width: float = 1.0, in_channels: int = 3) -> nn.Sequential:
    """Build VGG-11, with eight convolutions: 9.2M parameters and 153M FLOPs at 32x32.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        in_channels: Number of channels of the images.

    Returns:
        The network.
    """
    return _vgg(_VGG11, num_classes, width, in_channels)


def _vgg(stages: Sequence[Sequence[int]], num_classes: int, width: float, in_channels: int) -> nn.Sequential:
    """Build the network of these stages."""
    layers: list[nn.Module] = []
    last = in_channels
    for stage in stages:
        if layers:
            layers.append(nn.MaxPool2d(2))
        widths = [last, *(scale_channels(channels, width) for channels in stage)]
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        last = widths[-1]
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(*layers))
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("classifier", nn.Linear(last, num_classes))
    _initialise(model)
    return model


def _initialise(model: nn.Module) -> None:
    """Draw the initial weights."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
