"""torchvision's Faster R-CNN with FPN and RetinaNet on any backbone with stages, with configurable widths of
the heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cafenet.common.options import Positive, PositiveInt, Share, check_options
from cafenet.detection.backbone import Pyramid, TopLevels, feature_pyramid
from cafenet.detection.errors import DetectionError
from cafenet.detection.torchvision_ops import working_ops
from cafenet.modules.calling import as_written
from cafenet.modules.counting import ProductCounter

Target = dict[str, Tensor]
"""boxes (N, 4) as x1, y1, x2, y2 in pixels, and labels (N,) from 1 on; predictions also have scores (N,)."""

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class DetectorConfig:
    """The framework around a backbone; the defaults are those of torchvision, for images of about 800x1333."""

    framework: Literal["faster_rcnn", "retinanet"] = "faster_rcnn"
    """Kind of the detector."""
    strides: tuple[PositiveInt, ...] | None = None
    """Strides of the backbone's maps that the FPN takes; by default 4 to 32 for Faster R-CNN, 8 to 32 for RetinaNet."""
    extra_levels: bool = True
    """Add coarser maps on top: one for Faster R-CNN's proposals, two for RetinaNet. Small images need none."""
    fpn_channels: PositiveInt = 256
    """Number of channels of the FPN's maps."""
    head_depth: PositiveInt = 4
    """Number of convolutions before RetinaNet's two outputs."""
    head_width: PositiveInt = 1024
    """Width of the two linear layers of Faster R-CNN's box head."""
    group_norm: bool = False
    """Normalise the FPN and RetinaNet's heads in groups of 16 channels; helps if the pretraining is weak."""
    frozen_norms: bool = True
    """Keep the batch-norm statistics of the pretraining in the backbone, because few images per batch estimate them
    poorly."""
    min_size: PositiveInt = 800
    """Length in pixels to which the shorter side of an image is scaled."""
    max_size: PositiveInt = 1333
    """Largest length in pixels of the longer side of a scaled image."""
    image_mean: tuple[float, ...] = _IMAGENET_MEAN
    """Mean of each channel in the pretraining, for pixels between 0 and 1."""
    image_std: tuple[Positive, ...] = _IMAGENET_STD
    """Standard deviation of each channel in the pretraining, for pixels between 0 and 1."""
    anchor_scale: Positive | None = None
    """Side of the smallest anchor, in strides of its map; by default 8 for Faster R-CNN, 4 for RetinaNet."""
    anchor_octaves: PositiveInt | None = None
    """Number of anchor sizes per map, up to the size of the next map; by default 1 for Faster R-CNN, 3 for
    RetinaNet."""
    anchor_ratios: tuple[Positive, ...] = (0.5, 1.0, 2.0)
    """Height over width of the anchors."""
    proposals: PositiveInt = 2000
    """Number of proposals of Faster R-CNN's first stage in training, per map before suppression and in total after it;
    half as many in use."""
    regions: PositiveInt = 512
    """Number of proposals per image that Faster R-CNN's second stage is trained on."""
    roi_canonical_size: PositiveInt = 224
    """Side of a region that is read from the map of stride 16; a region twice as large is read one map higher."""
    detections: PositiveInt = 100
    """Largest number of boxes per image."""
    score_threshold: Share = 0.05
    """Smallest score of a box that is reported."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)

    @property
    def bin_strides(self) -> tuple[int, ...]:
        """The configured strides, or the defaults of the framework."""
        if self.strides is not None:
            return tuple(self.strides)
        return (4, 8, 16, 32) if self.framework == "faster_rcnn" else (8, 16, 32)


class Detector(nn.Module):
    """A detector of torchvision (`network`) that also works if torchvision's compiled operators are missing.

    In train mode it takes images and targets and returns losses by name; in eval mode it takes images and returns
    predictions.
    """

    def __init__(self, network: nn.Module) -> None:
        """Wrap a detector.

        Args:
            network: The detector of torchvision, on a `Pyramid`.
        """
        super().__init__()
        self.network = network

    def forward(self, images: Sequence[Tensor], targets: Sequence[Target] | None = None) -> Any:
        """Run the detector.

        Args:
            images: Images (3, H, W) with pixels between 0 and 1, of any sizes.
            targets: Boxes and labels of each image, in train mode.

        Returns:
            Losses by name in train mode; one prediction per image in eval mode.
        """
        with working_ops():
            return self.network(list(images), None if targets is None else list(targets))

    @property
    def pyramid(self) -> Pyramid:
        """The backbone with its FPN."""
        found = self.network.backbone
        assert isinstance(found, Pyramid)
        return found


def build_detector(model: nn.Module, num_classes: int, config: DetectorConfig | None = None) -> Detector:
    """Build a detector on a copy of a classification model.

    Args:
        model: The classification model; it is not changed.
        num_classes: Number of classes of objects, without the background.
        config: The framework and its options.

    Returns:
        The detector.

    Raises:
        DetectionError: If the options or the number of classes are wrong, or the model has no stages.
    """
    config = DetectorConfig() if config is None else config
    check_detector(config)
    if num_classes < 1:
        raise DetectionError(f"a detector must have one class or more, but got {num_classes}")
    is_two_stage = config.framework == "faster_rcnn"
    top: TopLevels = "none" if not config.extra_levels else "pool" if is_two_stage else "p6p7"
    norm = partial(nn.GroupNorm, config.fpn_channels // 16) if config.group_norm else None
    pyramid = feature_pyramid(
        model,
        strides=config.bin_strides,
        channels=config.fpn_channels,
        top=top,
        norm_layer=norm,
        frozen_norms=config.frozen_norms,
    )
    build = _faster_rcnn if is_two_stage else _retinanet
    return Detector(build(pyramid, num_classes + 1, config, norm))  # torchvision counts the background as class 0


def check_detector(config: DetectorConfig) -> None:
    """Report all mistakes of a config in one message.

    Args:
        config: The framework and its options.

    Raises:
        DetectionError: If an option is wrong.
    """
    problems = []
    for name in ("fpn_channels", "head_width", "min_size", "max_size", "proposals", "regions", "detections"):
        if getattr(config, name) < 1:
            problems.append(f"{name} must be 1 or more, but is {getattr(config, name)}")
    if config.head_depth < 0:
        problems.append(f"head_depth must be 0 or more, but is {config.head_depth}")
    if config.max_size < config.min_size:
        problems.append(f"`min_size <= max_size` must hold, but got {config.min_size} and {config.max_size}")
    if config.group_norm and config.fpn_channels % 16:
        problems.append(f"group_norm needs fpn_channels in sixteens, but there are {config.fpn_channels}")
    if not config.anchor_ratios or min(config.anchor_ratios) <= 0:
        problems.append(f"anchor_ratios must be positive, but are {list(config.anchor_ratios)}")
    if config.anchor_octaves is not None and config.anchor_octaves < 1:
        problems.append(f"anchor_octaves must be 1 or more, but is {config.anchor_octaves}")
    if config.anchor_scale is not None and config.anchor_scale <= 0:
        problems.append(f"anchor_scale must be positive, but is {config.anchor_scale}")
    if len(config.image_mean) != 3 or len(config.image_std) != 3 or min(config.image_std, default=0) <= 0:
        problems.append("image_mean and image_std must have three numbers, the latter positive")
    if problems:
        raise DetectionError("detector: " + "; ".join(problems))


def pyramid_flops(detector: Detector, height: int, width: int) -> int:
    """Count the multiply-adds of backbone and FPN for one image; those of the heads depend on what they find.

    Args:
        detector: The detector.
        height: Height of the image.
        width: Width of the image.

    Returns:
        The number of multiply-adds.

    Raises:
        DetectionError: If an operator has no formula.
    """
    pyramid = detector.pyramid
    tensors = {name: torch.empty_like(t, device="meta") for name, t in pyramid.state_dict().items()}
    was_training = pyramid.training
    counter = ProductCounter()
    pyramid.eval()
    try:
        with torch.no_grad(), as_written(), counter:
            torch.func.functional_call(pyramid, tensors, (torch.empty(1, 3, height, width, device="meta"),))
    finally:
        pyramid.train(was_training)
    if counter.uncounted:
        raise DetectionError(
            f"FLOPs must count every product, but no formula counts {', '.join(sorted(counter.uncounted))}; register "
            "one with torch.utils.flop_counter.register_flop_formula (0 if it multiplies nothing)"
        )
    return counter.total


def _anchors(config: DetectorConfig) -> Any:
    """Return the anchors of every map: at stride 8, scale 4 and 3 octaves, squares of 32, 40 and 51 pixels and their
    shapes."""
    is_two_stage = config.framework == "faster_rcnn"
    scale = config.anchor_scale or (8 if is_two_stage else 4)
    octaves = config.anchor_octaves or (1 if is_two_stage else 3)
    strides = list(config.bin_strides)
    for _ in range((1 if is_two_stage else 2) if config.extra_levels else 0):
        strides.append(2 * strides[-1])
    sizes = tuple(tuple(int(scale * stride * 2 ** (part / octaves)) for part in range(octaves)) for stride in strides)
    generator = import_module("torchvision.models.detection.anchor_utils").AnchorGenerator
    return generator(sizes, (tuple(config.anchor_ratios),) * len(sizes))


def _faster_rcnn(pyramid: Pyramid, num_classes: int, config: DetectorConfig, norm: Any) -> nn.Module:
    """Build Faster R-CNN."""
    library = import_module("torchvision.models.detection.faster_rcnn")
    pool = import_module("torchvision.ops.poolers").MultiScaleRoIAlign(
        [str(number) for number in range(len(config.bin_strides))],
        output_size=7,
        sampling_ratio=2,
        canonical_scale=config.roi_canonical_size,
    )
    in_use = max(1, config.proposals // 2)
    network: nn.Module = library.FasterRCNN(
        pyramid,
        min_size=config.min_size,
        max_size=config.max_size,
        image_mean=list(config.image_mean),
        image_std=list(config.image_std),
        rpn_anchor_generator=_anchors(config),
        rpn_pre_nms_top_n_train=config.proposals,
        rpn_post_nms_top_n_train=config.proposals,
        rpn_pre_nms_top_n_test=in_use,
        rpn_post_nms_top_n_test=in_use,
        box_roi_pool=pool,
        box_head=library.TwoMLPHead(config.fpn_channels * 7 * 7, config.head_width),
        box_predictor=library.FastRCNNPredictor(config.head_width, num_classes),
        box_batch_size_per_image=config.regions,
        box_detections_per_img=config.detections,
        box_score_thresh=config.score_threshold,
    )
    return network


def _retinanet(
    pyramid: Pyramid, num_classes: int, config: DetectorConfig, norm: Callable[[int], nn.Module] | None
) -> nn.Module:
    """Build RetinaNet."""
    library = import_module("torchvision.models.detection.retinanet")
    anchors = _anchors(config)
    head = library.RetinaNetHead(config.fpn_channels, anchors.num_anchors_per_location()[0], num_classes, norm)
    for part in (head.classification_head, head.regression_head):
        part.conv = _of_depth(part.conv, config.head_depth)
    network: nn.Module = library.RetinaNet(
        pyramid,
        num_classes,
        min_size=config.min_size,
        max_size=config.max_size,
        image_mean=list(config.image_mean),
        image_std=list(config.image_std),
        anchor_generator=anchors,
        head=head,
        detections_per_img=config.detections,
        score_thresh=config.score_threshold,
    )
    return network


def _of_depth(layers: nn.Sequential, depth: int) -> nn.Sequential:
    """Return the first layers of a head; torchvision always makes four, which is the largest depth."""
    if depth > len(layers):
        raise DetectionError(f"head_depth must be at most {len(layers)}, but is {depth}")
    return nn.Sequential(*list(layers)[:depth])
