"""ResNet-18, -34 and -50 with every width scaled; weights fit torchvision's networks, too.

Layer names are those of torchvision. The argument `width_per_group` of torchvision widens only the inside of
bottlenecks, and nothing in a ResNet-18.
"""

from collections import OrderedDict
from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import CafeNetError
from cafenet.models.scaling import scale_channels

_DEPTHS = {18: ("BasicBlock", (2, 2, 2, 2)), 34: ("BasicBlock", (3, 4, 6, 3)), 50: ("Bottleneck", (3, 4, 6, 3))}
"""Kind of block and number of blocks of each stage, by depth."""


def resnet(depth: int, num_classes: int = 1000, width: float = 1.0, in_channels: int = 3) -> nn.Sequential:
    """Build the network; at 224x224 and width 1, a ResNet-50 has 25.6M parameters and 4.1G FLOPs.

    Args:
        depth: 18, 34 or 50.
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        in_channels: Number of channels of the images.

    Returns:
        The network.

    Raises:
        CafeNetError: If the depth is unknown.
    """
    if depth not in _DEPTHS:
        raise CafeNetError(f"the depth of a ResNet must be one of {', '.join(map(str, _DEPTHS))}, but got {depth!r}")
    import_torchvision()
    kind, nums_blocks = _DEPTHS[depth]
    block = getattr(import_module("torchvision.models.resnet"), kind)
    before = scale_channels(64, width)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(in_channels, before, 7, stride=2, padding=3, bias=False),
        bn1=nn.BatchNorm2d(before),
        relu=nn.ReLU(inplace=True),
        maxpool=nn.MaxPool2d(3, stride=2, padding=1),
    )
    for number, num_blocks in enumerate(nums_blocks):
        inside = scale_channels(64 * 2**number, width)
        layers[f"layer{number + 1}"] = _stage(block, before, inside, num_blocks, stride=1 if number == 0 else 2)
        before = inside * block.expansion
    layers["avgpool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(before, num_classes)
    model = nn.Sequential(layers)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


resnet18 = partial(resnet, 18)
resnet34 = partial(resnet, 34)
resnet50 = partial(resnet, 50)


def _stage(block: Any, before: int, inside: int, num_blocks: int, stride: int) -> nn.Sequential:
    """Build the blocks of one resolution; the first one changes stride and width, also on its shortcut."""
    after = inside * block.expansion
    shortcut = None
    if stride != 1 or before != after:
        shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
    blocks = [block(before, inside, stride, shortcut)]
    return nn.Sequential(*blocks, *(block(after, inside) for _ in range(1, num_blocks)))
