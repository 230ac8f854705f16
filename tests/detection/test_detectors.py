"""Slim networks under both frameworks: they build, find boxes, and learn."""

from dataclasses import replace

import pytest
import torch

from cafenet.detection import DetectorConfig, build_detector
from cafenet.detection.errors import DetectionError
from cafenet.models import load_model
from tests.helpers.cells import SMALL, slim, tiny_net

LIGHT = DetectorConfig(fpn_channels=8, head_width=16, head_depth=1, min_size=64, max_size=64, proposals=20, regions=8)
FRAMEWORKS = ("faster_rcnn", "retinanet")


@pytest.fixture(scope="module")
def networks():
    return {
        name: slim(load_model(name, **options), (64, 64))
        for name, options in (("torchvision:resnet50", {}), ("torchvision:mobilenet_v2", {}))
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", ["torchvision:resnet50", "torchvision:mobilenet_v2"])
def test_a_slim_network_builds_runs_and_takes_a_step(networks, name, framework):
    detector = build_detector(networks[name], 3, replace(LIGHT, framework=framework)).train()
    images = [torch.rand(3, 64, 64), torch.rand(3, 64, 48)]
    targets = [
        {"boxes": torch.tensor([[5.0, 5.0, 40.0, 40.0]]), "labels": torch.tensor([2])},
        {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)},  # a picture of nothing
    ]
    losses = detector(images, targets)
    assert set(losses) == (
        {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
        if framework == "faster_rcnn"
        else {"classification", "bbox_regression"}
    )
    total = sum(losses.values())
    assert torch.isfinite(total)
    total.backward()
    first = next(module for module in detector.pyramid.body.modules() if isinstance(module, torch.nn.Conv2d))
    assert first.weight.grad is not None
    assert first.weight.grad.abs().sum() > 0  # the gradient reaches the first layer, through RoI-align too
    torch.optim.SGD(detector.parameters(), 0.001).step()
    detector.eval()
    with torch.no_grad():
        found = detector(images)
    assert len(found) == 2
    for each, image in zip(found, images, strict=True):
        assert each["boxes"].shape == (len(each["scores"]), 4)
        assert ((each["boxes"] >= 0) & (each["boxes"] <= max(image.shape))).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_detector_learns_one_picture(framework):
    detector = build_detector(tiny_net(), 1, replace(SMALL, framework=framework)).train()
    image = torch.zeros(3, 48, 64)
    image[:, 10:26, 20:36] = 1.0
    target = {"boxes": torch.tensor([[20.0, 10.0, 36.0, 26.0]]), "labels": torch.tensor([1])}
    optimizer = torch.optim.Adam(detector.parameters(), 0.003)
    for _ in range(160):  # after 80, some CPUs are 4 pixels off
        loss = sum(detector([image, image], [target, target]).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    detector.eval()
    with torch.no_grad():
        (found,) = detector([image])
    assert found["labels"][0] == 1
    assert found["scores"][0] > 0.3
    torch.testing.assert_close(found["boxes"][0], target["boxes"][0], atol=3.0, rtol=0)


def test_defaults_are_those_of_torchvision():
    net = load_model("torchvision:resnet18")
    two = build_detector(net, 90).network
    assert two.rpn.anchor_generator.sizes == ((32,), (64,), (128,), (256,), (512,))
    assert two.roi_heads.box_head.fc6.in_features == 256 * 49
    one = build_detector(net, 90, DetectorConfig(framework="retinanet")).network
    assert one.anchor_generator.sizes == tuple(
        (x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512)
    )
    assert one.head.classification_head.cls_logits.out_channels == 9 * 91


def test_light_heads():
    config = replace(SMALL, framework="retinanet", head_depth=2, anchor_octaves=2, group_norm=True)
    network = build_detector(tiny_net(), 2, config).network
    assert len(network.head.classification_head.conv) == len(network.head.regression_head.conv) == 2
    assert network.anchor_generator.sizes == ((12, 16), (24, 33))  # 3 strides, and that times the root of 2
    assert isinstance(network.head.classification_head.conv[0][1], torch.nn.GroupNorm)


def test_all_mistakes_of_a_config_in_one_message():
    with pytest.raises(DetectionError) as error:
        DetectorConfig(fpn_channels=0, image_std=(0.0,), head_depth=-1)
    for part in ("fpn_channels must be a whole number of at least 1", "image_std", "head_depth"):
        assert part in str(error.value)
    config = DetectorConfig(min_size=10, max_size=5, anchor_ratios=(), image_std=(1.0,))
    with pytest.raises(DetectionError) as error:
        build_detector(tiny_net(), 2, config)
    for part in ("min_size <= max_size", "anchor_ratios", "image_std"):
        assert part in str(error.value)
    with pytest.raises(DetectionError, match="head_depth must be at most 4, but is 5"):
        build_detector(tiny_net(), 2, replace(SMALL, framework="retinanet", head_depth=5))
    with pytest.raises(DetectionError, match="one class or more, but got 0"):
        build_detector(tiny_net(), 0, SMALL)
