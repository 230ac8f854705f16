"""A classification network as a detector's backbone: its stages, and a feature pyramid (FPN) on their channel counts.

A stage is a run of layers at one resolution. The stages of a ResNet are `layer1` to `layer4`; those of a MobileNetV2
lie in `features`, one block after the other, and its last 1x1 convolution, which only serves the classifier, is left
out. Any other network has stages if its layers lie in one `features` in the order in which they run.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.detection.errors import DetectionError
from cafenet.modules.tensors import to_meta
from cafenet.modules.unwrapping import unwrap

TopLevels = Literal["none", "pool", "p6p7"]
"""Kind of the extra maps on top of a pyramid."""
_RESNET_STAGES = ("layer1", "layer2", "layer3", "layer4")
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm)


class Pyramid(nn.Module):
    """Stages of a network with an FPN on top: it turns a batch of images into named maps with equal numbers of
    channels."""

    def __init__(self, stages: "OrderedDict[str, nn.Module]", fpn: nn.Module, out_channels: int, frozen: bool) -> None:
        """Join stages and FPN.

        Args:
            stages: The stages by name, in order.
            fpn: The feature pyramid network on their maps.
            out_channels: Number of channels of each output map.
            frozen: If True, norm layers of the stages keep their statistics and are not trained.
        """
        super().__init__()
        self.body = nn.ModuleDict(stages)
        self.fpn = fpn
        self.out_channels = out_channels
        """Number of channels of each output map; torchvision's detectors read it from a backbone."""
        self.has_frozen_norms = frozen
        if frozen:
            for parameter in (each for norm in self._norms() for each in norm.parameters()):
                parameter.requires_grad_(False)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Compute the maps of a batch.

        Args:
            images: Normalised images, shape (N, 3, H, W).

        Returns:
            The maps by name, the finest first.
        """
        maps: OrderedDict[str, Tensor] = OrderedDict()
        for number, stage in enumerate(self.body.values()):
            images = stage(images)
            maps[str(number)] = images
        pyramid: dict[str, Tensor] = self.fpn(maps)
        return pyramid

    def train(self, mode: bool = True) -> "Pyramid":
        """Set the mode; frozen norm layers keep the statistics of the pretraining while the rest is trained.

        Args:
            mode: True for training, False for use.

        Returns:
            The pyramid itself.
        """
        super().train(mode)
        if self.has_frozen_norms:
            for norm in self._norms():
                norm.eval()
        return self

    def _norms(self) -> list[nn.Module]:
        """Return the norm layers of the stages."""
        return [module for module in self.body.modules() if isinstance(module, _NORMS)]


def feature_pyramid(
    model: nn.Module,
    *,
    strides: Sequence[int] = (4, 8, 16, 32),
    channels: int = 256,
    top: TopLevels = "pool",
    norm_layer: Callable[[int], nn.Module] | None = None,
    frozen_norms: bool = False,
) -> Pyramid:
    """Copy the stages of a model and put an FPN on the last map of each stride.

    A slim MobileNetV2 with 12, 30 and 90 channels at strides 8, 16 and 32 gets an FPN on (12, 30, 90).

    Args:
        model: The classification model; it is not changed.
        strides: Strides of the maps, rising.
        channels: Number of channels of each output map.
        top: Extra maps: one by pooling ("pool", Faster R-CNN), two by convolutions ("p6p7", RetinaNet), or "none".
        norm_layer: Builds a norm layer of the FPN from its number of channels.
        frozen_norms: If True, norm layers of the stages keep their statistics and are not trained.

    Returns:
        The pyramid.

    Raises:
        DetectionError: If the model has no stages, or lacks one of the strides.
    """
    layers = _layers(unwrap(model))
    found = _cut(layers, tuple(strides), type(model).__name__)
    import_torchvision()
    pyramids = import_module("torchvision.ops.feature_pyramid_network")
    extra: Any = None
    if top == "pool":
        extra = pyramids.LastLevelMaxPool()
    elif top == "p6p7":
        extra = pyramids.LastLevelP6P7(channels, channels)
    fpn = pyramids.FeaturePyramidNetwork([count for _, count in found.values()], channels, extra, norm_layer)
    stages: OrderedDict[str, nn.Module] = OrderedDict()
    before = 0
    for stride, (last, _) in found.items():
        # The copies keep their names, so that widths of the stages read like those of the network.
        stages[f"stride{stride}"] = nn.Sequential(OrderedDict(copy.deepcopy(layers[before : last + 1])))
        before = last + 1
    return Pyramid(stages, fpn, channels, frozen_norms)


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the layers in the order in which they run, up to the last stage; a network without stages is an error."""
    children = dict(model.named_children())
    if all(name in children for name in _RESNET_STAGES):
        names = list(children)
        return [(name, children[name]) for name in names[: names.index(_RESNET_STAGES[-1]) + 1]]
    features = children.get("features")
    if isinstance(features, nn.Sequential) and len(features) > 1:
        layers = [(f"features{name}", layer) for name, layer in features.named_children()]
        return layers[:-1] if _is_pointwise(layers[-1][1]) else layers
    raise DetectionError(
        f"a backbone must have stages: layer1 to layer4 as in a ResNet, or layers in a row in `features` as in a "
        f"MobileNetV2, but {type(model).__name__} has {_listed(list(children)) or 'no layers'}; wrap it in a module "
        "with `features = nn.Sequential(...)`"
    )


def _is_pointwise(layer: nn.Module) -> bool:
    """Return whether a layer is nothing but a 1x1 convolution with its norm and activation."""
    convolutions = [each for each in layer.modules() if isinstance(each, nn.Conv2d)]
    is_plain = isinstance(layer, nn.Sequential) and len(convolutions) == 1
    return is_plain and convolutions[0].kernel_size == (1, 1)


def _cut(
    layers: list[tuple[str, nn.Module]], strides: tuple[int, ...], kind: str
) -> "OrderedDict[int, tuple[int, int]]":
    """Return for each stride the last layer that has it and its channel count, found by a run without values."""
    if not strides or list(strides) != sorted(set(strides)):
        raise DetectionError(f"strides must be given once each and rise, as in (8, 16, 32), but are {list(strides)}")
    side = 64 * max(strides)
    in_channels = next((each.in_channels for each in _modules(layers) if isinstance(each, nn.Conv2d)), 3)
    x = torch.empty(1, in_channels, side, side, device="meta")
    last: dict[int, tuple[int, int]] = {}
    with torch.no_grad():
        for number, (name, layer) in enumerate(layers):
            try:
                x = torch.func.functional_call(layer, to_meta(dict(layer.state_dict())), (x,))
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                raise DetectionError(
                    f"the layers of a backbone must run one after the other, but {name} of {kind} does not take what "
                    f"the layer before gives: {str(error).splitlines()[0]}"
                ) from error
            if not isinstance(x, Tensor) or x.ndim != 4:
                break
            last[round(side / x.shape[2])] = (number, x.shape[1])
    missing = [stride for stride in strides if stride not in last]
    if missing:
        raise DetectionError(
            f"the strides of a pyramid must be ones that the backbone has, but {kind} has {_listed(last)} and not "
            f"{_listed(missing)}; change detector.strides, or give the network other strides: by backbones.options "
            "where it has an option for them, else by backbones.model, another network with the same layers"
        )
    return OrderedDict((stride, last[stride]) for stride in strides)


def _modules(layers: list[tuple[str, nn.Module]]) -> list[nn.Module]:
    """Return all modules of the layers."""
    return [module for _, layer in layers for module in layer.modules()]


def _listed(values: Any) -> str:
    """Return values separated by commas."""
    return ", ".join(map(str, values))
