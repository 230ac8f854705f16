"""Models of timm that cut channels by sizes from attributes: traced whole, and proven on real values."""

import importlib.util

import pytest
import torch

import cafenet
from tests.helpers.networks import unexplained

if importlib.util.find_spec("timm") is None:
    pytest.skip("timm is not installed", allow_module_level=True)

# name, number of groups
QUICK = [("fasternet_t0", 35), ("mambaout_femto", 42)]
SLOW = [("mixnet_s", 72), ("inception_next_atto", 29), ("res2net50_26w_4s", 45), ("nfnet_f0", 57)]


@pytest.mark.parametrize(("name", "num_groups"), QUICK + [pytest.param(*row, marks=pytest.mark.slow) for row in SLOW])
def test_model(name: str, num_groups: int):
    """All widths but the number of classes may vary, so half of them leave about a quarter of the FLOPs."""
    image = torch.zeros(1, 3, 64, 64)
    space = cafenet.trace(cafenet.load_model(f"timm:{name}"), image)
    assert len(space.groups) == num_groups
    assert [entry.reason for entry in space.frozen] == ["is an output of the model"]
    assert unexplained(space) == set()
    assert cafenet.verify(space, image, trials=1).problems == []
    half = {g.name: max(g.min_width, g.channels // g.divisor // 2 * g.divisor) for g in space.groups}
    assert space.flops(half) < 0.35 * space.flops()
