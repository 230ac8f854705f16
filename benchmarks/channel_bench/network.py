"""The MobileNet of the public table: seven width groups, 211,281,920 multiply-adds at 32x32."""

from collections.abc import Sequence

from torch import Tensor, nn

CHANNELS = (128, 768, 768, 768, 256, 1536, 1024)
"""Full widths: stem and first stream, three hidden widths, second stream, a hidden width, last convolution."""
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
