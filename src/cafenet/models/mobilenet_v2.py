"""MobileNetV2 with configurable strides and every width scaled; weights fit torchvision's network, too.

Layer names are those of torchvision. For width factors below 1, torchvision's own network keeps its last convolution at
1280 channels. Here it shrinks with the rest, because searched widths are compared with a uniform factor.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from cafenet.models.scaling import scale_channels

IMAGENET_STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Stride of the first block of each stage for images of 224x224."""
_STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""Expansion, channels and number of blocks of each stage (table 2 of the MobileNetV2 paper)."""


def mobilenet_v2(
    num_classes: int = 1000,
    width: float = 1.0,
    in_channels: int = 3,
    dropout: float = 0.2,
    stem_stride: int = 2,
    stage_strides: Sequence[int] = IMAGENET_STRIDES,
) -> nn.Sequential:
    """Build the network; with the defaults it has 3.5M parameters and 301M FLOPs at 224x224.

    Args:
        num_classes: Number of classes.
        width: Factor on the width of every layer.
        in_channels: Number of channels of the images.
        dropout: Dropout rate before the last layer.
        stem_stride: Stride of the first convolution.
        stage_strides: Stride of the first block of each of the seven stages.

    Returns:
        The network.
    """
    before = scale_channels(32, width)
    features: list[nn.Module] = [_conv(in_channels, before, 3, stride=stem_stride)]
    for (expansion, channels, num_blocks), stride in zip(_STAGES, stage_strides, strict=True):
        after = scale_channels(channels, width)
        for number in range(num_blocks):
            features.append(InvertedResidual(before, after, stride if number == 0 else 1, expansion, number > 0))
            before = after
    last = scale_channels(1280, width)
    features.append(_conv(before, last, 1))
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(*features))
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("classifier", nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes)))
    _initialise(model)
    return model


class InvertedResidual(nn.Module):
    """A block that expands, filters each channel and projects.

    In all blocks of a stage but the first, the input is added. Other implementations add the input wherever shapes
    allow it. Rounding can make two stages equally wide, however, and a narrow network would then have other connections
    than the wide one.
    """

    def __init__(self, before: int, after: int, stride: int, expansion: int, is_residual: bool) -> None:
        """Build the block.

        Args:
            before: Number of input channels.
            after: Number of output channels.
            stride: Stride of the depthwise convolution.
            expansion: Factor from input channels to the channels inside the block.
            is_residual: If True, the input is added to the output.
        """
        super().__init__()
        inside = before * expansion
        layers = [_conv(before, inside, 1)] if expansion != 1 else []
        layers.append(_conv(inside, inside, 3, stride=stride, groups=inside))
        self.conv = nn.Sequential(*layers, nn.Conv2d(inside, after, 1, bias=False), nn.BatchNorm2d(after))
        self.is_residual = is_residual

    def forward(self, x: Tensor) -> Tensor:
        """Run the block.

        Args:
            x: Images, shape (N, before, H, W).

        Returns:
            The output, shape (N, after, H / stride, W / stride).
        """
        out: Tensor = self.conv(x)
        return x + out if self.is_residual else out


def _conv(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Build a convolution with batch norm and ReLU6."""
    padding = kernel // 2
    convolution = nn.Conv2d(before, after, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU6(inplace=True))


def _initialise(model: nn.Module) -> None:
    """Draw the initial weights."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
