"""A width search on the detector itself: backbone and FPN are searched together, under the detector's own loss.

The tracer and the supernet see only the pyramid, an ordinary network from images to maps. The heads stay outside and
become part of the loss: they accept the maps of every width, because the outputs of the pyramid keep their channels.

    detector = build_detector(model, num_classes, config)
    space = cafenet.trace(detector.pyramid, torch.zeros(1, 3, 256, 320))
    supernet = cafenet.Supernet(detector.pyramid, space)
    step = supernet.step(batch, pyramid_loss(detector))
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from cafenet.detection.detectors import Detector, Target
from cafenet.detection.errors import DetectionError
from cafenet.detection.images import Pictures
from cafenet.detection.torchvision_ops import working_ops


class FixedSize(Dataset[tuple[Tensor, Target]]):
    """Pictures in the form that a supernet takes: normalised, padded to one size, with equally many boxes (label 0: no
    box)."""

    def __init__(self, pictures: Pictures, detector: Detector) -> None:
        """Find the common size and the largest number of boxes.

        Args:
            pictures: The images.
            detector: The detector, whose normalisation is used.
        """
        transform: Any = detector.network.transform
        self._pictures = pictures
        self._mean, self._std = (
            torch.tensor(each)[:, None, None] for each in (transform.image_mean, transform.image_std)
        )
        sizes = [pictures.scaling.of(picture) for picture in pictures.data.pictures]
        divisor = transform.size_divisible
        self.size = tuple(-(-max(side) // divisor) * divisor for side in zip(*sizes, strict=True))
        self._num_boxes = max(len(picture.boxes) for picture in pictures.data.pictures)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, Target]:
        image, target = self._pictures[index]
        padded = torch.zeros(3, *self.size)
        padded[:, : image.shape[1], : image.shape[2]] = (image - self._mean) / self._std
        boxes, labels = torch.zeros(self._num_boxes, 4), torch.zeros(self._num_boxes, dtype=torch.int64)
        boxes[: len(target["boxes"])], labels[: len(target["labels"])] = target["boxes"], target["labels"]
        return padded, {"boxes": boxes, "labels": labels}


def pyramid_loss(detector: Detector) -> Callable[[Mapping[str, Tensor], Target], Tensor]:
    """Return the detector's training loss as a function of its pyramid's maps and of padded targets (see `FixedSize`).

    Args:
        detector: The detector.

    Returns:
        A function of (maps, target) that returns the loss.
    """

    def detector_loss(maps: Mapping[str, Tensor], target: Target) -> Tensor:
        with working_ops(), _training(detector.network):
            losses = _losses(detector.network, dict(maps), _unpadded(target))
        return torch.stack(list(losses.values())).sum()

    return detector_loss


def pyramid_metric(detector: Detector) -> Callable[[Mapping[str, Tensor], Target], Tensor]:
    """Return a metric for `search_widths`: minus the detector's loss on every example.

    The random samples of Faster R-CNN are the same at every call.

    Args:
        detector: The detector.

    Returns:
        A function of (maps, target) that returns one value per example.
    """
    loss = pyramid_loss(detector)

    @torch.no_grad()
    def negative_detector_loss(maps: Mapping[str, Tensor], target: Target) -> Tensor:
        values = []
        for number in range(len(target["labels"])):
            one = slice(number, number + 1)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                part = {name: each[one] for name, each in target.items()}
                values.append(-loss({name: each[one] for name, each in maps.items()}, part))
        return torch.stack(values)

    return negative_detector_loss


def head_parameters(detector: Detector) -> list[nn.Parameter]:
    """Return the parameters that are trained beside the supernet: all except those of the pyramid.

    Args:
        detector: The detector.

    Returns:
        The parameters.
    """
    inside = {id(parameter) for parameter in detector.pyramid.parameters()}
    return [parameter for parameter in detector.parameters() if id(parameter) not in inside]


def with_pyramid(detector: Detector, pyramid: nn.Module) -> Detector:
    """Copy a detector with another pyramid of the same outputs, such as the slim one that a search found.

    Args:
        detector: The detector; it is not changed.
        pyramid: The other pyramid.

    Returns:
        The copy.

    Raises:
        DetectionError: If the pyramids have different numbers of output channels.
    """
    if getattr(pyramid, "out_channels", None) != detector.pyramid.out_channels:
        raise DetectionError(
            f"a pyramid must have {detector.pyramid.out_channels} output channels like the one that it replaces, but "
            f"has {getattr(pyramid, 'out_channels', None)}"
        )
    memo: dict[int, Any] = {id(detector.pyramid): copy.deepcopy(pyramid)}
    return copy.deepcopy(detector, memo)


def _losses(network: Any, maps: dict[str, Tensor], targets: list[Target]) -> dict[str, Tensor]:
    """Compute what the network's own forward computes after its backbone."""
    library = import_module("torchvision.models.detection.image_list")
    first = next(iter(maps.values()))
    size = tuple(side * _stride(network) for side in first.shape[2:])
    images = library.ImageList(first.new_zeros(len(first), 3, *size), [size] * len(first))
    if hasattr(network, "roi_heads"):
        proposals, of_proposals = network.rpn(images, maps, targets)
        _, of_boxes = network.roi_heads(maps, proposals, images.image_sizes, targets)
        return {**of_proposals, **of_boxes}
    levels = list(maps.values())
    losses: dict[str, Tensor] = network.compute_loss(
        targets, network.head(levels), network.anchor_generator(images, levels)
    )
    return losses


def _stride(network: Any) -> int:
    """Return the stride of the finest map."""
    return int(next(iter(network.backbone.body)).removeprefix("stride"))


def _unpadded(target: Target) -> list[Target]:
    """Return the targets without padded boxes."""
    return [
        {"boxes": boxes[labels > 0], "labels": labels[labels > 0]}
        for boxes, labels in zip(target["boxes"], target["labels"], strict=True)
    ]


@contextmanager
def _training(network: nn.Module) -> Iterator[None]:
    """Put the heads in train mode, in which they compute losses; they hold no statistics, so nothing else changes."""
    heads = [module for name, module in network.named_children() if name != "backbone"]
    before = [module.training for module in heads]
    for module in heads:
        module.train()
    try:
        yield
    finally:
        for module, mode in zip(heads, before, strict=True):
            module.train(mode)
