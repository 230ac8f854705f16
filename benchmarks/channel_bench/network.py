"""The networks of the public tables, seven width groups each: 211M (MobileNet) and 1,436M (ResNet) multiply-adds."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu

CHANNELS = (128, 768, 768, 768, 256, 1536, 1024)
"""Full widths: stem and first stream, three hidden widths, second stream, a hidden width, last convolution."""
RESNET_CHANNELS = (256, 256, 256, 512, 512, 512, 512)
"""Full widths: stem and first stream, three hidden widths, second stream, two hidden widths."""
NUM_CLASSES = 10


class InvertedBlock(nn.Module):
    """1x1 to a hidden width, 3x3 depthwise, 1x1 back; added to its input where the shape stays."""

    def __init__(self, before: int, hidden: int, after: int, *, stride: int, shortcut: bool) -> None:
        super().__init__()
        self.expand = _convolution(before, hidden, 1)
        self.depthwise = _convolution(hidden, hidden, 3, stride=stride, groups=hidden)
        self.project = _convolution(hidden, after, 1, activation=False)
        self.shortcut = shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the three convolutions and the shortcut."""
        inner: Tensor = self.project(self.depthwise(self.expand(inputs)))
        return inputs + inner if self.shortcut else inner


def build_network(channels: Sequence[int] = CHANNELS) -> nn.Sequential:
    """Build the network with these widths, in the order of the table's keys."""
    stream, first, second, third, late_stream, fourth, last = channels
    return nn.Sequential(
        _convolution(3, stream, 3, stride=2),
        InvertedBlock(stream, first, stream, stride=1, shortcut=True),
        InvertedBlock(stream, second, stream, stride=1, shortcut=True),
        InvertedBlock(stream, third, late_stream, stride=2, shortcut=False),
        InvertedBlock(late_stream, fourth, late_stream, stride=1, shortcut=True),
        _convolution(late_stream, last, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(last, NUM_CLASSES),
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions; added to their input where the shape stays. The table's ResNet has no other shortcut."""

    def __init__(self, before: int, hidden: int, after: int, *, stride: int = 1, shortcut: bool = True) -> None:
        super().__init__()
        self.first = _convolution(before, hidden, 3, stride=stride)
        self.second = _convolution(hidden, after, 3, activation=False)
        self.shortcut = shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the two convolutions and the shortcut."""
        inner: Tensor = self.second(self.first(inputs))
        return relu(inputs + inner if self.shortcut else inner)


def build_resnet(channels: Sequence[int] = RESNET_CHANNELS) -> nn.Sequential:
    """Build the table's ResNet with these widths, in the order of its keys."""
    stream, first, second, third, late_stream, fourth, fifth = channels
    return nn.Sequential(
        _convolution(3, stream, 3, stride=2),
        ResidualBlock(stream, first, stream),
        ResidualBlock(stream, second, stream),
        ResidualBlock(stream, third, late_stream, stride=2, shortcut=False),
        ResidualBlock(late_stream, fourth, late_stream),
        ResidualBlock(late_stream, fifth, late_stream),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(late_stream, NUM_CLASSES),
    )


def narrow_resnet() -> nn.Sequential:
    """Build the ResNet with a quarter of its channels, which trains here in minutes."""
    return build_resnet([channels // 4 for channels in RESNET_CHANNELS])


def quarters_to_channels(quarters: Sequence[int]) -> list[int]:
    """Translate a key of the table: [1, 4, ...] is [32, 768, ...]."""
    return [full * quarter // 4 for full, quarter in zip(CHANNELS, quarters, strict=True)]


def _convolution(
    before: int, after: int, size: int, *, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
    ]
    return nn.Sequential(*layers, nn.ReLU()) if activation else nn.Sequential(*layers)
