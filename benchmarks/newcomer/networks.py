"""Two networks of the kinds that newcomers bring, with hand-made widths, scaled to 16x16 images."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import relu

from cafenet.common.torchvision_compat import import_torchvision

import_torchvision()
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3  # noqa: E402
from torchvision.models.resnet import BasicBlock, conv1x1  # noqa: E402


class ResNet(nn.Module):
    """Torchvision's ResNet with one `BasicBlock` a stage, a stem for small images and 16 to 128 channels."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128), num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        blocks, before = [], widths[0]
        for after in widths:
            is_same = before == after
            shortcut = None if is_same else nn.Sequential(conv1x1(before, after, 2), nn.BatchNorm2d(after))
            blocks.append(BasicBlock(before, after, 1 if is_same else 2, shortcut))
            before = after
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(before, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Run the layers as torchvision does, without max-pooling."""
        features = self.layers(relu(self.bn1(self.conv1(images))))
        return self.fc(features.mean(dim=(2, 3)))


def mobilenet_v3() -> nn.Module:
    """Torchvision's MobileNetV3 itself, with six blocks: squeeze-excitation, hard-swish, a stride of 8 in all."""
    # in, kernel, expanded, out, squeeze-excitation, activation, stride, dilation
    settings = (
        (16, 3, 16, 16, True, "RE", 1, 1),
        (16, 3, 64, 24, False, "RE", 1, 1),
        (24, 3, 72, 24, False, "RE", 1, 1),
        (24, 5, 96, 40, True, "HS", 2, 1),
        (40, 5, 160, 40, True, "HS", 1, 1),
        (40, 5, 192, 64, True, "HS", 2, 1),
    )
    rows = [InvertedResidualConfig(*row, width_mult=1.0) for row in settings]  # type: ignore[arg-type]
    return MobileNetV3(rows, last_channel=256, num_classes=10, dropout=0.0)


NETWORKS: dict[str, Callable[[], nn.Module]] = {"resnet": ResNet, "mobilenet_v3": mobilenet_v3}
