"""Widths searched on the detector itself: backbone and FPN traced together, under the detector's loss."""

from dataclasses import replace

import pytest
import torch

import cafenet
from cafenet.detection import (
    FixedSize,
    build_detector,
    head_parameters,
    pyramid_loss,
    pyramid_metric,
    train_detector,
    with_pyramid,
)
from cafenet.detection.errors import DetectionError
from cafenet.detection.training import DetectionTraining
from cafenet.space.bins import flops_sensitive_bins
from tests.helpers.cells import SMALL, pictures, tiny_net

FRAMEWORKS = ("faster_rcnn", "retinanet")


def detector_of(framework):
    return build_detector(tiny_net(), 2, replace(SMALL, framework=framework, group_norm=framework == "retinanet"))


def batch_of(data):
    return torch.utils.data.default_collate([data[number] for number in range(len(data))])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_backbone_and_fpn_are_one_space_that_keeps_its_outputs(framework):
    detector = build_detector(tiny_net(), 2, replace(SMALL, framework=framework))
    space = cafenet.trace(detector.pyramid, torch.zeros(1, 3, 64, 64))
    names = [group.name for group in space.groups]
    assert [name.split(".")[0] for name in names] == ["body"] * 5 + ["fpn"]
    assert [frozen.name for frozen in space.frozen] == ["fpn.layer_blocks.1.0", "fpn.layer_blocks.0.0"]
    assert all(frozen.reason.startswith("is an output of the model (") for frozen in space.frozen)
    assert cafenet.verify(space, torch.randn(1, 3, 64, 64)).ok


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_loss_of_the_maps_is_the_detectors_own(tmp_path, framework):
    detector = detector_of(framework).train()
    found = pictures(tmp_path, 2)
    data = FixedSize(found, detector)
    assert data.size == (64, 64)  # 48x64, padded to 32s
    images, target = batch_of(data)
    assert images.shape == (2, 3, 64, 64)
    torch.manual_seed(3)  # Faster R-CNN samples boxes
    whole = sum(detector([found[0][0], found[1][0]], [found[0][1], found[1][1]]).values())
    torch.manual_seed(3)
    ours = pyramid_loss(detector)(detector.pyramid(images), target)
    # What is padded counts as part of the image for proposals, and the batch norms have seen one batch more.
    torch.testing.assert_close(ours, whole, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_search_from_start_to_end(tmp_path, framework):
    detector = detector_of(framework)
    found = pictures(tmp_path, 8)
    data = FixedSize(found, detector)
    space = cafenet.trace(detector.pyramid, torch.zeros(1, 3, *data.size))
    supernet = cafenet.Supernet(detector.pyramid, space, flops_sensitive_bins(space, beta=1.0))
    loss = pyramid_loss(detector)
    optimizer = torch.optim.SGD([*supernet.parameters(), *head_parameters(detector)], lr=0.01, momentum=0.9)
    heads = [parameter.clone() for parameter in head_parameters(detector)]
    for _ in range(3):
        step = supernet.step(batch_of(data), loss)
        step.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not all(torch.equal(a, b) for a, b in zip(heads, head_parameters(detector), strict=True))
    (result,) = cafenet.search_widths(
        supernet,
        data,
        data,
        "50%",
        algorithm=cafenet.RandomSearch(samples=4),
        metric=pyramid_metric(detector),
        quiet=True,
    )
    assert result.costs["flops"] <= 0.5 * space.flops()
    slim = with_pyramid(detector, space.extract(channels=result.channels, model=supernet.model))
    train_detector(slim, found, DetectionTraining(epochs=1, batch_size=4), quiet=True)
    sizes = [sum(p.numel() for p in each.pyramid.parameters()) for each in (slim, detector)]
    assert sizes[0] < sizes[1]
    slim.eval()
    with torch.no_grad():
        (detections,) = slim([found[0][0]])
    height, width = found[0][0].shape[1:]
    assert detections["boxes"].shape == (len(detections["scores"]), 4)
    assert (detections["boxes"] >= 0).all()
    assert (detections["boxes"] <= torch.tensor([width, height, width, height])).all()
    assert ((detections["scores"] > 0) & (detections["scores"] <= 1)).all()


def test_the_metric_gives_every_example_the_same_value_each_time(tmp_path):
    detector = detector_of("faster_rcnn").eval()
    images, target = batch_of(FixedSize(pictures(tmp_path, 3), detector))
    with torch.no_grad():
        maps = detector.pyramid(images)
    values = pyramid_metric(detector)(maps, target)
    assert values.shape == (3,)
    assert torch.equal(values, pyramid_metric(detector)(maps, target))
    last = {name: each[2:] for name, each in maps.items()}
    torch.testing.assert_close(pyramid_metric(detector)(last, {name: t[2:] for name, t in target.items()}), values[2:])
    assert not detector.training


def test_another_pyramid_must_have_the_same_outputs():
    detector = detector_of("retinanet")
    other = build_detector(tiny_net(), 2, replace(SMALL, framework="retinanet", fpn_channels=32)).pyramid
    with pytest.raises(DetectionError, match="16 output channels like the one that it replaces, but has 32"):
        with_pyramid(detector, other)
