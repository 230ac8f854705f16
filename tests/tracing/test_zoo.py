"""One torchvision model of every family: traced, and proven on real values at one random choice of widths."""

import pytest
import torch

import cafenet
from tests.helpers.networks import unexplained

# name, image size, number of groups
QUICK = [
    ("convnext_tiny", 32, 22),
    ("densenet121", 32, 120),
    ("efficientnet_b0", 32, 40),
    ("googlenet", 32, 61),
    ("inception_v3", 75, 94),
    ("mnasnet0_5", 32, 25),
    ("mobilenet_v2", 32, 25),
    ("mobilenet_v3_small", 32, 27),
    ("regnet_y_400mf", 32, 53),
    ("resnet18", 32, 12),
    ("resnext50_32x4d", 32, 37),
    ("shufflenet_v2_x0_5", 32, 20),
    ("squeezenet1_1", 32, 25),
    ("swin_t", 32, 16),
    ("deeplabv3_mobilenet_v3_large", 32, 36),
    ("mc3_18", (4, 32, 32), 12),
]
SLOW = [
    ("alexnet", 64, 7),
    ("efficientnet_v2_s", 32, 75),
    ("maxvit_t", 224, 50),
    ("regnet_x_400mf", 32, 49),
    ("resnet50", 32, 37),
    ("swin_v2_t", 32, 28),
    ("vgg11_bn", 32, 10),
    ("vit_b_32", 32, 13),
    ("wide_resnet50_2", 32, 37),
    ("fcn_resnet50", 32, 38),
    ("lraspp_mobilenet_v3_large", 32, 30),
    ("r3d_18", (4, 32, 32), 12),
    ("swin3d_t", (4, 32, 32), 16),
    ("raft_small", 128, 37),
]


def images(name: str, size: int | tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    image = torch.zeros(1, 3, *(size if isinstance(size, tuple) else (size, size)))
    return (image, image) if name.startswith("raft") else (image,)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "size", "num_groups"), QUICK + [pytest.param(*row, marks=pytest.mark.slow) for row in SLOW]
)
def test_model(name: str, size: int | tuple[int, ...], num_groups: int):
    options = {"image_size": size} if name.startswith("vit") else {}
    model = cafenet.load_model(f"torchvision:{name}", **options)
    inputs = images(name, size)
    space = cafenet.trace(model, inputs)
    assert len(space.groups) == num_groups
    assert any(not group.mixes for group in space.groups)
    result = cafenet.verify(space, inputs, trials=1)
    assert result.problems == []
    assert space.flops(space.min_widths) < space.flops()
    assert unexplained(space) == set()
