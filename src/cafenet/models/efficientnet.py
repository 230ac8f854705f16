"""EfficientNet-B0 with a width factor: 5.3M parameters and 386M FLOPs at 224x224 (paper, ImageNet results)."""

from importlib import import_module

from torch import nn

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.models.scaling import scale_channels

SQUEEZE_LAYERS = ("*.fc1",)
"""Layers to freeze, with wildcards, so that the squeeze widths of the SE blocks stay, as in the paper (appendix a10).
No other layer of an EfficientNet of torchvision is called fc1."""

_STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
"""Expansion, kernel, stride, channels in, channels out and number of blocks (table 1 of the EfficientNet paper)."""


def efficientnet_b0(num_classes: int = 1000, width: float = 1.0, dropout: float = 0.2) -> nn.Module:
    """Build torchvision's network with every width scaled, including the squeeze widths.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        dropout: Dropout rate before the last layer.

    Returns:
        The network.
    """
    import_torchvision()
    library = import_module("torchvision.models.efficientnet")
    stages = [
        library.MBConvConfig(*shape, scale_channels(before, width), scale_channels(after, width), num_blocks)
        for *shape, before, after, num_blocks in _STAGES
    ]
    model: nn.Module = library.EfficientNet(stages, dropout, num_classes=num_classes)
    return model
