"""CIFAR-shaped VGG and MobileNetV2, narrow enough for a CPU to train at batch 256."""

from torch import nn

from cafenet.common.torchvision_compat import import_torchvision


def vgg(width: float = 0.25, num_classes: int = 10) -> nn.Module:
    """VGG-19 with batch norm for 32x32 images; the paper's is width 1.0."""
    plan = (64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512, "M", 512, 512, 512, 512)
    layers: list[nn.Module] = []
    channels = 3
    for entry in plan:
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2))
            continue
        out = round(entry * width)
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def mobilenet_v2(width: float = 0.25, num_classes: int = 10) -> nn.Module:
    """MobileNetV2 for 32x32 images: stem and early stages without stride, as in the paper's CIFAR experiments."""
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 1),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    models = import_torchvision().models
    model: nn.Module = models.MobileNetV2(
        num_classes=num_classes, width_mult=width, inverted_residual_setting=[list(s) for s in settings]
    )
    model.features[0][0].stride = (1, 1)  # type: ignore[index, union-attr]
    return model
