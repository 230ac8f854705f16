"""The paper's networks have the paper's size, and the width factor that a FLOPs factor asks for."""

import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import CafeNetError, ModelNameError
from cafenet.models import default_input_size, frozen_by_default, load_model, scale_to_flops
from cafenet.models.registry import PAPER_MODELS
from cafenet.models.resnet import resnet
from cafenet.models.scaling import scale_channels


def traced(name: str, **kwargs: object) -> cafenet.WidthSpace:
    with torch.device("meta"):
        model = load_model(name, **kwargs)
    example = torch.zeros(1, *default_input_size(name))
    return cafenet.trace(model, example, freeze=frozen_by_default(name))


# the sizes of the paper


@pytest.mark.parametrize(
    ("name", "params", "flops", "paper_params", "paper_flops"),
    [
        ("cafenet:cifar_vgg19", 20_035_018, 398_136_320, 20e6, 399e6),
        ("cafenet:cifar_mobilenet_v2", 2_236_682, 296_473_088, 2.2e6, 297e6),
        ("torchvision:resnet18", 11_689_512, 1_814_073_344, 11.7e6, 1.8e9),
        ("torchvision:resnet34", 21_797_672, 3_663_761_408, 21.8e6, 3.6e9),
        ("torchvision:resnet50", 25_557_032, 4_089_184_256, 25.5e6, 4.1e9),
        ("torchvision:mobilenet_v2", 3_504_872, 300_774_272, 3.5e6, 300e6),
        ("torchvision:efficientnet_b0", 5_288_548, 385_814_752, 5.3e6, 386e6),
        ("cafenet:celeba_resnet18", 11_197_032, 1_295_421_440, 11.2e6, 1.3e9),
        ("cafenet:celeba_mobilenet_v2", 2_275_112, 213_975_680, 2.2e6, 213e6),
    ],
)
def test_size_of_the_paper(name: str, params: int, flops: int, paper_params: float, paper_flops: float):
    space = traced(name)
    assert (space.params(), space.flops()) == (params, flops)
    assert abs(params - paper_params) < 0.1e6
    assert flops == pytest.approx(paper_flops, rel=0.02)  # the paper rounds 3.66G to 3.6G


@pytest.mark.parametrize(
    ("name", "widths", "sides"),
    [
        (
            "cafenet:cifar_vgg19",
            [3, 64, 64, 128, 128, *[256] * 4, *[512] * 8],
            [32, 32, 16, 16, *[8] * 4, *[4] * 4, *[2] * 4],
        ),
        ("cafenet:cifar_vgg11", [3, 64, 128, 256, 256, *[512] * 4], [32, 16, 8, 8, 4, 4, 2, 2]),
    ],
)
def test_vgg_by_hand(name: str, widths: list[int], sides: list[int]):
    layers = list(zip(widths, widths[1:], sides, strict=False))
    assert len(layers) == len(sides) == int(name[-2:]) - 3
    flops = sum(9 * before * after * side**2 for before, after, side in layers) + 512 * 10
    params = sum(9 * before * after + 2 * after for before, after, _ in layers) + 512 * 10 + 10
    space = traced(name)
    assert (space.params(), space.flops()) == (params, flops)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "mobilenet_v2", "efficientnet_b0"])
def test_scalable_network_is_torchvisions_at_width_one(name: str):
    theirs = load_model(f"torchvision:{name}", num_classes=7).eval()
    ours = load_model(f"cafenet:{name}", num_classes=7).eval()
    ours.load_state_dict(theirs.state_dict())
    image = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(image), theirs(image))


# widths that are searched


@pytest.mark.parametrize("name", ["cafenet:efficientnet_b0", "torchvision:efficientnet_b0"])
def test_exactly_the_squeeze_widths_of_efficientnet_are_frozen(name: str):
    with torch.device("meta"):
        model = load_model(name)
    squeezed = {f"{path}.fc1" for path, module in model.named_modules() if type(module).__name__ == "SqueezeExcitation"}
    free = cafenet.trace(model, torch.zeros(1, *default_input_size(name)))
    space = traced(name)
    by_wish = {entry.name for entry in space.frozen if entry.reason.startswith("is frozen by")}
    assert by_wish == squeezed
    assert len(squeezed) == 16
    assert {entry.name for entry in space.frozen} - by_wish == {"classifier.1"}
    assert {group.name for group in free.groups} - {group.name for group in space.groups} == squeezed
    assert len(space.groups) == 24


@pytest.mark.parametrize("name", ["cafenet:celeba_resnet18", "cafenet:celeba_mobilenet_v2"])
def test_of_a_celeba_network_only_the_linear_layer_is_not_searched(name: str):
    space = traced(name)
    assert [(entry.channels, entry.reason) for entry in space.frozen] == [(40, "is an output of the model")]


def test_nothing_else_is_frozen_by_default():
    assert frozen_by_default("torchvision:resnet50") == ()
    assert frozen_by_default("nets.py:efficientnet_b0") == ()
    assert frozen_by_default("cafenet:cifar_vgg19") == ()


# width factors


@pytest.mark.parametrize("name", [f"cafenet:{name}" for name in PAPER_MODELS])
def test_half_the_width_halves_every_layer(name: str):
    whole, half = traced(name), traced(name, width=0.5)
    for full_width, half_width in zip(whole.full_widths.values(), half.full_widths.values(), strict=True):
        assert full_width / 2 <= half_width <= full_width / 2 + 8 * 6  # rounded up to 8, times the expansion
    assert 0.2 < half.flops() / whole.flops() < 0.35


@pytest.mark.parametrize("name", ["cifar_vgg19", "cifar_mobilenet_v2"])
def test_networks_for_grey_images_of_28x28(name: str):
    model = load_model(f"cafenet:{name}", in_channels=1, width=0.25).eval()
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("channels", "width", "expected"),
    [(64, 0.5, 32), (24, 0.75, 24), (16, 0.25, 8), (64, 1.2, 80), (3, 1.0, 8), (1280, 1.0, 1280)],
)
def test_channels_are_rounded_to_multiples_of_8_but_not_down_by_a_tenth(channels: int, width: float, expected: int):
    assert scale_channels(channels, width) == expected


@pytest.mark.parametrize("width", [0, -1.0, float("nan"), float("inf")])
def test_width_that_is_no_width(width: float):
    with pytest.raises(CafeNetError, match="must be positive and finite"):
        load_model("cafenet:cifar_vgg19", width=width)


# FLOPs factors


def test_efficientnet_of_one_and_a_half_times_the_flops():
    space = traced("cafenet:efficientnet_b0", flops_factor=1.5)
    assert space.flops() == pytest.approx(1.5 * 385_814_752, rel=0.01)
    assert len(space.groups) == 24


def one_conv(round_to: int) -> Callable[[float], nn.Module]:
    def build(width: float) -> nn.Module:
        channels = max(1, round(100 * width / round_to)) * round_to
        return nn.Sequential(nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 3, 1))

    return build


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 1.5, 4.0])
def test_width_for_a_flops_factor(factor: float):
    # FLOPs are 6 * channels, so the width is the factor itself
    model, width = scale_to_flops(one_conv(1), torch.zeros(1, 3, 1, 1), factor)
    assert model[0].out_channels == round(100 * factor)
    assert width == pytest.approx(factor, abs=0.006)
    assert model[0].weight.device.type == "cpu"


def test_nearest_of_two_steps_is_taken():
    # steps of 40 channels, and 80 at width 1: 1.3 is 104, far from 80 and 120; 2.02 is near 160
    assert one_conv(40)(1.0)[0].out_channels == 80
    with pytest.raises(CafeNetError, match=r"within 5% of .* rounds too coarsely"):
        scale_to_flops(one_conv(40), torch.zeros(1, 3, 1, 1), 1.3)
    model, _ = scale_to_flops(one_conv(40), torch.zeros(1, 3, 1, 1), 2.02)
    assert model[0].out_channels == 160


def test_builder_that_ignores_its_width():
    def build(width: float) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 3, 1))

    with pytest.raises(CafeNetError, match="the builder ignores its width"):
        scale_to_flops(build, torch.zeros(1, 3, 1, 1), 1.5)


def test_builder_that_reads_values_is_built_with_them():
    def build(width: float) -> nn.Module:
        sizes = torch.tensor([100.0, 50.0]) * width
        return nn.Sequential(nn.Conv2d(3, int(sizes[0]), 1), nn.Conv2d(int(sizes[0]), 3, 1))

    model, _ = scale_to_flops(build, torch.zeros(1, 3, 1, 1), 0.5)
    assert model[0].out_channels == 50


@pytest.mark.parametrize("factor", [0.0, -2.0, float("nan")])
def test_factor_that_is_no_factor(factor: float):
    with pytest.raises(CafeNetError, match="flops_factor must be positive and finite"):
        load_model("cafenet:cifar_vgg19", flops_factor=factor)


# names


def test_unknown_name_lists_near_misses():
    with pytest.raises(ModelNameError, match=r"did you mean .*cafenet:cifar_vgg19"):
        load_model("cafenet:cifar_vgg")


def test_width_and_flops_factor_together():
    with pytest.raises(ModelNameError, match="either width or flops_factor, but got both"):
        load_model("cafenet:cifar_vgg19", width=0.5, flops_factor=0.5)


def test_argument_that_the_network_does_not_take():
    with pytest.raises(ModelNameError, match=r"cafenet:celeba_resnet18 could not be built: TypeError.*num_clases"):
        load_model("cafenet:celeba_resnet18", num_clases=3)


def test_default_input_size_of_the_papers_networks():
    assert default_input_size("cafenet:cifar_vgg19") == (3, 32, 32)
    assert default_input_size("cafenet:celeba_mobilenet_v2") == (3, 224, 160)
    assert default_input_size("cafenet:efficientnet_b0") == (3, 224, 224)


def test_depth_that_no_resnet_has():
    with pytest.raises(CafeNetError, match="one of 18, 34, 50, but got 19"):
        resnet(19)


def test_cifar_networks_need_no_torchvision(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(CafeNetError, match="torchvision must be installed"):
        load_model("cafenet:celeba_resnet18")
    assert isinstance(load_model("cafenet:cifar_mobilenet_v2", width=0.25), nn.Module)
    assert isinstance(load_model("cafenet:cifar_vgg19", width=0.25), nn.Module)
