"""Box suppression and RoI-align equal what one would write in loops, gradients included."""

import math

import pytest
import torch
from torch import Tensor

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.detection import torchvision_ops as ops
from cafenet.detection.torchvision_ops import has_compiled_ops, nms, roi_align, working_ops


def random_boxes(num: int, side: float = 50.0) -> Tensor:
    start = torch.rand(num, 2) * side
    return torch.cat([start, start + torch.rand(num, 2) * side / 2], dim=1)


def overlap(a: list[float], b: list[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0.0) * max(height, 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return common / union if union else 0.0


def suppress_in_loops(boxes: Tensor, scores: Tensor, threshold: float) -> list[int]:
    kept: list[int] = []
    for number in sorted(range(len(boxes)), key=lambda each: -float(scores[each])):
        if all(overlap(boxes[number].tolist(), boxes[other].tolist()) <= threshold for other in kept):
            kept.append(number)
    return kept


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.7])
def test_suppression_equals_loops(seed, threshold, monkeypatch):
    monkeypatch.setattr(ops, "_BLOCK", 16)  # several blocks
    torch.manual_seed(seed)
    boxes, scores = random_boxes(60).double(), torch.rand(60)
    assert nms(boxes, scores, threshold).tolist() == suppress_in_loops(boxes, scores, threshold)


def test_suppression_of_equal_scores_equal_boxes_and_boxes_without_area():
    boxes = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 2], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 1]], dtype=torch.float64)
    scores = torch.tensor([0.5, 0.5, 0.5, 0.9, 0.5])
    assert nms(boxes, scores, 0.5).tolist() == [3, 0, 2, 4]  # 4 overlaps 0 by exactly a half, which is not more
    assert nms(boxes, scores, 0.4).tolist() == [3, 0, 2]
    assert nms(boxes[:0], scores[:0], 0.5).tolist() == []


def test_a_long_chain_is_suppressed_in_turn():
    start = torch.arange(40.0)  # each overlaps the next by 0.6 of 1.4: 3/7
    boxes = torch.stack([start * 0.4, torch.zeros(40), start * 0.4 + 1, torch.ones(40)], dim=1)
    assert nms(boxes, torch.arange(40, 0, -1).float(), 0.4).tolist() == list(range(0, 40, 2))


def align_in_loops(
    maps: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    """RoI-align as its papers describe it, one sampling point after the other."""

    def value(image: int, y: float, x: float) -> Tensor:
        rows, columns = maps.shape[2:]
        if not (-1 <= y <= rows and -1 <= x <= columns):
            return maps.new_zeros(maps.shape[1])
        y, x = min(max(y, 0.0), rows - 1), min(max(x, 0.0), columns - 1)
        top, left = int(y), int(x)
        bottom, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
        down, along = y - top, x - left
        upper = maps[image, :, top, left] * (1 - along) + maps[image, :, top, right] * along
        lower = maps[image, :, bottom, left] * (1 - along) + maps[image, :, bottom, right] * along
        return upper * (1 - down) + lower * down

    regions = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (corner * scale - (0.5 if aligned else 0) for corner in corners)
        tall, wide = y2 - y1, x2 - x1
        if not aligned:
            tall, wide = max(tall, 1.0), max(wide, 1.0)
        points_y = ratio if ratio > 0 else math.ceil(tall / height)
        points_x = ratio if ratio > 0 else math.ceil(wide / width)
        bins = []
        for row in range(height):
            for column in range(width):
                found = [
                    value(
                        int(image),
                        y1 + (row + (i + 0.5) / points_y) * tall / height,
                        x1 + (column + (j + 0.5) / points_x) * wide / width,
                    )
                    for i in range(points_y)
                    for j in range(points_x)
                ]
                bins.append(torch.stack(found).sum(0) / max(len(found), 1))
        regions.append(torch.stack(bins, dim=1).reshape(-1, height, width))
    return torch.stack(regions)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, 3, -1])
def test_align_equals_loops_with_its_gradient(ratio, aligned):
    maps = torch.randn(2, 3, 7, 9, dtype=torch.float64, requires_grad=True)
    boxes = random_boxes(6, side=20.0).double() - 3.0  # some of them stick out of the map
    rois = torch.cat([torch.tensor([0, 1, 1, 0, 1, 0]).double()[:, None], boxes], dim=1)
    arguments = (0.4, 3, 2, ratio, aligned)
    ours, reference = roi_align(maps, rois, *arguments), align_in_loops(maps, rois, *arguments)
    torch.testing.assert_close(ours, reference)
    weights = torch.randn_like(ours)
    (gradient,) = torch.autograd.grad((ours * weights).sum(), maps)
    (expected,) = torch.autograd.grad((reference * weights).sum(), maps)
    torch.testing.assert_close(gradient, expected)
    assert expected.abs().sum() > 0


def test_align_passes_gradcheck_and_takes_no_regions():
    maps = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 1.0, 1.0, 6.0, 7.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda each: roi_align(each, rois, 0.5, 2, 2, 2, False), (maps,))
    assert roi_align(maps, rois[:0], 0.5, 2, 2, 2, False).shape == (0, 2, 2, 2)


def test_the_mean_of_a_region_by_hand():
    maps = torch.arange(16.0).reshape(1, 1, 4, 4)
    # One bin over the pixels' centres 1..3: points at 1.5 and 2.5 both ways, whose mean is the value at (2, 2).
    assert roi_align(maps, torch.tensor([[0, 1.0, 1.0, 3.0, 3.0]]), 1.0, 1, 1, 2, False).item() == 10.0


def test_half_precision_maps_stay_in_half_precision():
    maps = torch.randn(1, 4, 6, 6)
    rois = torch.tensor([[0, 1.0, 1.0, 5.0, 5.0]])
    halves = roi_align(maps.bfloat16(), rois.bfloat16(), 1.0, 2, 2, 2, False)
    assert halves.dtype == torch.bfloat16
    torch.testing.assert_close(halves.float(), roi_align(maps, rois, 1.0, 2, 2, 2, False), atol=0.05, rtol=0.05)


def test_torchvision_works_inside_and_is_as_before_outside():
    torchvision = import_torchvision()
    boxes, scores, classes = random_boxes(40), torch.rand(40), torch.randint(3, (40,))
    with working_ops():
        with working_ops():
            pass
        kept = torchvision.ops.batched_nms(boxes, scores, classes, 0.3).tolist()
        pooled = torchvision.ops.roi_align(torch.randn(1, 2, 8, 8), [boxes[:5] / 8], 3, 1.0, 2)
    alone = [
        int(torch.where(classes == each)[0][number])
        for each in range(3)
        for number in suppress_in_loops(boxes[classes == each].double(), scores[classes == each], 0.3)
    ]
    assert sorted(kept) == sorted(alone)
    assert pooled.shape == (5, 2, 3, 3)
    if not has_compiled_ops():
        with pytest.raises(RuntimeError, match="Couldn't load custom C"):
            torchvision.ops.nms(boxes, scores, 0.5)


def test_compiled_operators_are_left_alone(monkeypatch):
    import_torchvision()
    import torchvision.extension

    monkeypatch.setattr(torchvision.extension, "_has_ops", lambda: True)
    monkeypatch.setattr(ops, "_give_kernels", lambda: pytest.fail("kernels were replaced"))
    with working_ops():
        pass
