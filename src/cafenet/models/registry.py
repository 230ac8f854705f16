"""The networks of the paper and of the demo by name, as `cafenet:NAME`, each with the input size for its FLOPs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cafenet.errors import ModelNameError
from cafenet.models import celeba, cifar_mobilenet_v2, efficientnet, mobilenet_v2, plain_cnn, resnet, vgg
from cafenet.models.scaling import scale_to_flops

IMAGENET = (3, 224, 224)
"""Input size of ImageNet networks: channels, height and width."""
CIFAR = (3, 32, 32)
"""Input size of CIFAR networks: channels, height and width."""


@dataclass(frozen=True)
class PaperModel:
    """A network that takes a width factor, and its input size."""

    build: Callable[..., nn.Module]
    """Builds the network; takes `width` among its arguments."""
    input_size: tuple[int, int, int]
    """Channels, height and width of the input."""


PAPER_MODELS = {
    "plain_cnn": PaperModel(plain_cnn.plain_cnn, (1, 28, 28)),
    "cifar_vgg19": PaperModel(vgg.vgg19_bn, CIFAR),
    "cifar_vgg11": PaperModel(vgg.vgg11_bn, CIFAR),
    "cifar_mobilenet_v2": PaperModel(cifar_mobilenet_v2.mobilenet_v2, CIFAR),
    "resnet18": PaperModel(resnet.resnet18, IMAGENET),
    "resnet34": PaperModel(resnet.resnet34, IMAGENET),
    "resnet50": PaperModel(resnet.resnet50, IMAGENET),
    "mobilenet_v2": PaperModel(mobilenet_v2.mobilenet_v2, IMAGENET),
    "efficientnet_b0": PaperModel(efficientnet.efficientnet_b0, IMAGENET),
    "celeba_resnet18": PaperModel(celeba.resnet18, celeba.INPUT_SIZE),
    "celeba_mobilenet_v2": PaperModel(celeba.mobilenet_v2, celeba.INPUT_SIZE),
}
"""All networks, by the name after `cafenet:`."""


def build_paper_model(target: str, *, flops_factor: float | None = None, **kwargs: Any) -> nn.Module:
    """Build one of `PAPER_MODELS`.

    Args:
        target: Name in the table.
        flops_factor: If set, the width is chosen so that the network has this multiple of its FLOPs; 1.5 for
            "efficientnet_b0" gives the supernet from which 1.0x is searched.
        **kwargs: Arguments of the network; `width` scales every layer.

    Returns:
        The network with fresh weights.

    Raises:
        ModelNameError: If both `width` and `flops_factor` are given.
    """
    model = PAPER_MODELS[target]
    if flops_factor is None:
        return model.build(**kwargs)
    if "width" in kwargs:
        raise ModelNameError(f"cafenet:{target} takes either width or flops_factor, but got both")
    channels, height, width = model.input_size
    example = torch.zeros(1, kwargs.get("in_channels", channels), height, width)
    return scale_to_flops(lambda factor: model.build(width=factor, **kwargs), example, flops_factor)[0]


def frozen_by_default(name: str) -> tuple[str, ...]:
    """Return the layers, with wildcards, that the paper's search of a model freezes, for `cafenet.trace(..., freeze=)`.

    Args:
        name: Name of the model, as for `load_model`.

    Returns:
        The squeeze layers of the SE blocks of an EfficientNet; nothing for all other models.
    """
    source, _, target = name.partition(":")
    is_efficientnet = source in ("cafenet", "torchvision") and target.startswith("efficientnet_")
    return efficientnet.SQUEEZE_LAYERS if is_efficientnet else ()
