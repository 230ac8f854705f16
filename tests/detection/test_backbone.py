"""Backbones by their stages: which layers, which channel counts, and which networks have none."""

import pytest
import torch
from torch import nn

from cafenet.detection import build_detector, feature_pyramid
from cafenet.detection.detectors import DetectorConfig, pyramid_flops
from cafenet.detection.errors import DetectionError
from cafenet.models import load_model
from tests.helpers.cells import slim, tiny_net


def shapes(pyramid: nn.Module, side: int = 64) -> list[list[int]]:
    with torch.no_grad():
        return [list(each.shape[1:]) for each in pyramid.eval()(torch.zeros(1, 3, side, side)).values()]


def in_channels(pyramid: nn.Module) -> list[int]:
    return [block[0].in_channels for block in pyramid.fpn.inner_blocks]


def test_the_last_map_of_each_stride_is_taken():
    pyramid = feature_pyramid(tiny_net(), strides=(2, 4, 8), channels=5, top="none")
    assert in_channels(pyramid) == [8, 16, 32]
    assert shapes(pyramid) == [[5, 32, 32], [5, 16, 16], [5, 8, 8]]
    assert [list(dict(stage.named_children())) for stage in pyramid.body.values()] == [
        ["features0"],
        ["features1", "features2"],
        ["features3", "features4"],
    ]


def test_levels_on_top():
    assert shapes(feature_pyramid(tiny_net(), strides=(4, 8), channels=5, top="pool")) == [
        [5, 16, 16],
        [5, 8, 8],
        [5, 4, 4],
    ]
    assert [each[1] for each in shapes(feature_pyramid(tiny_net(), strides=(8,), channels=5, top="p6p7"))] == [8, 4, 2]


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("cafenet:celeba_mobilenet_v2", [24, 32, 96, 320]),  # table 2 of the MobileNetV2 paper, without the 1280
        ("torchvision:mobilenet_v2", [24, 32, 96, 320]),
        ("torchvision:resnet18", [64, 128, 256, 512]),
        ("cafenet:resnet50", [256, 512, 1024, 2048]),
    ],
)
def test_networks_of_the_paper(name, channels):
    assert in_channels(feature_pyramid(load_model(name), channels=8)) == channels


def test_the_pyramid_of_a_slim_network_gives_what_its_stages_give():
    narrow = slim(load_model("cafenet:mobilenet_v2", width=0.25), (32, 32)).eval()
    pyramid = feature_pyramid(narrow, strides=(8, 16), channels=8).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        inside = [stage(x) for stage in [narrow.features[:7], narrow.features[:14]]]
        ours = pyramid.body["stride8"](x)
        torch.testing.assert_close(ours, inside[0])
        torch.testing.assert_close(pyramid.body["stride16"](ours), inside[1])
    assert in_channels(pyramid) == [narrow.features[6].conv[-1].num_features, narrow.features[13].conv[-1].num_features]


def test_the_network_itself_is_not_changed():
    net = tiny_net()
    pyramid = feature_pyramid(net, strides=(4, 8), channels=4, frozen_norms=True)
    for parameter in pyramid.parameters():
        parameter.data.zero_()
    assert all(parameter.abs().sum() > 0 for parameter in net.features[0][0].parameters())
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_frozen_norms_keep_their_statistics_and_weights():
    pyramid = feature_pyramid(tiny_net(), strides=(4, 8), channels=4, frozen_norms=True).train()
    norm = pyramid.body["stride4"].features1[1]
    before = norm.running_mean.clone()
    sum(each.sum() for each in pyramid(torch.randn(2, 3, 32, 32)).values()).backward()
    assert torch.equal(norm.running_mean, before)
    assert norm.weight.grad is None
    assert pyramid.body["stride4"].features1[0].weight.grad is not None
    trained = feature_pyramid(tiny_net(), strides=(4, 8), channels=4).train()
    trained(torch.randn(2, 3, 32, 32))
    assert not torch.equal(trained.body["stride4"].features1[1].running_mean, before)


def test_flops_of_a_pyramid_by_hand():
    net = nn.Module()
    net.features = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.Conv2d(4, 6, 3, 2, 1, bias=False))
    config = DetectorConfig(strides=(2, 4), extra_levels=False, fpn_channels=5, head_width=8)
    # On 32x32: 256 places x 27 x 4, 64 x 36 x 6; FPN: 1x1 on 256 x 4 x 5 and 64 x 6 x 5, 3x3 on (256 + 64) x 45 x 5.
    by_hand = 27_648 + 13_824 + 5_120 + 1_920 + 72_000
    assert pyramid_flops(build_detector(net, 1, config), 32, 32) == by_hand


def test_a_network_without_stages():
    with pytest.raises(DetectionError, match=r"must have stages: .* but Sequential has 0, 1, 2, .*features"):
        feature_pyramid(load_model("cafenet:plain_cnn", in_channels=3))
    with pytest.raises(DetectionError, match="but Linear has no layers"):
        feature_pyramid(nn.Linear(3, 4))


def test_strides_that_the_network_does_not_have():
    with pytest.raises(DetectionError, match=r"Net has 2, 4, 8 and not 16, 32; change detector\.strides"):
        feature_pyramid(tiny_net(), strides=(8, 16, 32))
    with pytest.raises(DetectionError, match=r"rise, as in \(8, 16, 32\), but are \[8, 4\]"):
        feature_pyramid(tiny_net(), strides=(8, 4))


def test_layers_that_do_not_run_one_after_the_other():
    net = nn.Module()
    net.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(5, 6, 3))
    with pytest.raises(DetectionError, match="features1 of Module does not take what the layer before gives"):
        feature_pyramid(net)
