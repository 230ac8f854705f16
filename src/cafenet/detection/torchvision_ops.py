"""Non-maximum suppression and RoI-align in plain torch, for a torchvision whose compiled operators did not load.

torchvision's detectors call `torchvision::nms` and `torchvision::roi_align`. With a torch that torchvision was not
compiled for (a CPU-only build, for example), these have no kernels, and torchvision refuses before it even calls them.
`working_ops` registers kernels, once and only if they are missing, and disables the refusal while it lasts:

    with working_ops():
        torchvision.ops.nms(boxes, scores, 0.5)

If the compiled operators are available, they are used and nothing is changed.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch
from torch import Tensor
from torch.nn import functional

from cafenet.common.torchvision_compat import import_torchvision

_ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor"
)
_BLOCK = 512
"""Number of boxes that are compared with each other at once: large enough for few steps, small enough for little
memory."""


def has_compiled_ops() -> bool:
    """Return whether torchvision has its own compiled operators.

    Returns:
        True if they are loaded.
    """
    import_torchvision()
    return bool(import_module("torchvision.extension")._has_ops())


@contextmanager
def working_ops() -> Iterator[None]:
    """Make torchvision's `nms`, `batched_nms` and `roi_align` work while the context lasts, compiled or not.

    Yields:
        Nothing.
    """
    if has_compiled_ops():
        yield
        return
    import_module("torchvision.ops")
    _give_kernels()
    modules = [sys.modules[name] for name in ("torchvision.extension", "torchvision.ops.roi_align")]
    before = [vars(module)["_has_ops"] for module in modules]
    for module in modules:
        vars(module)["_has_ops"] = lambda: True
    try:
        yield
    finally:
        for module, found in zip(modules, before, strict=True):
            vars(module)["_has_ops"] = found


@functools.cache  # the kernels live as long as the Library object, so the cache keeps it alive
def _give_kernels() -> torch.library.Library:
    """Register the kernels of this module with torch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.impl("nms", nms, "CompositeExplicitAutograd")
    if not hasattr(torch.ops.torchvision, "roi_align"):
        library.define(_ROI_ALIGN)
    library.impl("roi_align", roi_align, "CompositeImplicitAutograd")
    return library


@torch.no_grad()
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the boxes that no better box overlaps by more than the threshold (non-maximum suppression).

    The boxes [0, 0, 2, 2] and [0, 0, 2, 1] overlap by a half: the better one stays at a threshold of 0.4, both at 0.5.

    Args:
        boxes: x1, y1, x2, y2 of each box, shape (N, 4).
        scores: Score of each box, shape (N,).
        iou_threshold: Largest allowed intersection over union.

    Returns:
        The numbers of the boxes, best first.
    """
    order = scores.argsort(descending=True, stable=True)
    ordered = boxes[order]
    kept = torch.empty(0, dtype=torch.long, device=boxes.device)
    for start in range(0, len(order), _BLOCK):
        block = torch.arange(start, min(start + _BLOCK, len(order)), device=boxes.device)
        block = block[~(_overlaps(ordered[kept], ordered[block]) > iou_threshold).any(dim=0)]
        above = (_overlaps(ordered[block], ordered[block]) > iou_threshold).triu_(diagonal=1)
        kept = torch.cat([kept, block[_greedy(above)]])
    return order[kept]


def _greedy(suppresses: Tensor) -> Tensor:
    """Return which boxes stay, if row i marks the boxes after i that box i suppresses.

    Greedy suppression is the only answer in which a box stays exactly if no box that stays suppresses it. Evaluating
    this rule for all boxes at once, again and again, settles the first box, then those that depend on it, and so on, in
    a few rounds.
    """
    weights = suppresses.float()
    stays = torch.ones(len(weights), dtype=torch.bool, device=weights.device)
    while True:
        now = stays.float() @ weights == 0
        if torch.equal(now, stays):
            return stays
        stays = now


def _overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Return the intersection over union of every pair; it is NaN, which exceeds no threshold, for two boxes without
    area."""
    (left, top, right, bottom), (lefts, tops, rights, bottoms) = first.T[:, :, None], second.T
    across = (torch.minimum(right, rights) - torch.maximum(left, lefts)).clamp_(min=0)
    common = (torch.minimum(bottom, bottoms) - torch.maximum(top, tops)).clamp_(min=0).mul_(across)
    areas = (right - left) * (bottom - top) + (rights - lefts) * (bottoms - tops)
    overlaps: Tensor = common / (areas - common)
    return overlaps


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Average regions of feature maps to a fixed size; differentiable in `input`.

    Every bin of a region is a weighted sum of pixels: four around each of its sampling points. That is an embedding bag
    with pixels for words, whose time depends on the regions and not on the size of the maps.

    Args:
        input: Feature maps, shape (N, C, H, W).
        rois: Number of the image, x1, y1, x2 and y2 of each region, shape (R, 5).
        spatial_scale: Factor from the coordinates of the regions to those of the maps.
        pooled_height: Height of the result.
        pooled_width: Width of the result.
        sampling_ratio: Number of sampling points per bin and axis; 0 or less takes one per pixel, rounded up.
        aligned: If True, coordinates are shifted by half a pixel.

    Returns:
        The averages, shape (R, C, pooled_height, pooled_width).
    """
    num_images, channels, height, width = input.shape
    with torch.no_grad():
        corners = rois[:, 1:].to(torch.promote_types(rois.dtype, torch.float32)) * spatial_scale
        corners = corners - (0.5 if aligned else 0.0)
        start, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
        if not aligned:
            size = size.clamp(min=1.0)
        columns, in_x = _pixels(start[:, 0], size[:, 0], pooled_width, sampling_ratio, width)
        rows, in_y = _pixels(start[:, 1], size[:, 1], pooled_height, sampling_ratio, height)
        places = (rois[:, 0].long()[:, None, None] * height + rows)[:, :, None, :, None] * width
        places = places + columns[:, None, :, None, :]
        weights = in_y[:, :, None, :, None] * in_x[:, None, :, None, :]
    table = input.permute(0, 2, 3, 1).reshape(num_images * height * width, channels).to(weights.dtype)
    num_taken = rows.shape[2] * columns.shape[2]
    bags = functional.embedding_bag(
        places.reshape(-1, num_taken), table, mode="sum", per_sample_weights=weights.reshape(-1, num_taken)
    )
    pooled = bags.view(len(rois), pooled_height, pooled_width, channels).permute(0, 3, 1, 2)
    return pooled.contiguous().to(input.dtype)


def _pixels(start: Tensor, size: Tensor, num_bins: int, sampling_ratio: int, limit: int) -> tuple[Tensor, Tensor]:
    """Return, for one axis, the pixels that each bin reads and their weights, both (regions, bins, pixels).

    A bin with sampling points p reads floor(p) and the next pixel. Points beyond the map by more than one pixel count
    as zeros. Without a sampling ratio, there is one point for every pixel of the bin's length, rounded up.
    """
    num_points = torch.full_like(size, sampling_ratio) if sampling_ratio > 0 else (size / num_bins).ceil()
    most = int(num_points.max().clamp(min=1)) if len(size) else 1
    step = torch.arange(most, device=size.device)
    bins = torch.arange(num_bins, device=size.device)
    length = (size / num_bins)[:, None, None]
    inside = (step + 0.5) * length / num_points.clamp(min=1)[:, None, None]
    points = start[:, None, None] + bins[None, :, None] * length + inside
    counts = (step < num_points[:, None, None]) & (points >= -1.0) & (points <= limit)
    share = counts / num_points.clamp(min=1)[:, None, None]
    points = points.clamp(0, limit - 1)
    low = points.floor()
    rest = points - low
    pixels = torch.cat([low, (low + 1).clamp(max=limit - 1)], dim=2).long()
    return pixels, torch.cat([(1 - rest) * share, rest * share], dim=2)
