"""A subnet's tensors gathered together are those that are sliced one by one."""

import numpy as np
import torch
from torch import nn

import cafenet
from cafenet.space.layout import Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 9, 3),
        nn.BatchNorm2d(9),
        nn.ReLU(),
        nn.Conv2d(9, 7, 3),
        nn.BatchNorm2d(7),
        nn.Flatten(),
        nn.Linear(28, 4),
    )
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = torch.randn(tensor.shape).to(tensor.dtype)
    model[4].double_scale = nn.Parameter(torch.randn(7, dtype=torch.float64))  # of another type, and never used
    return model


def test_gathered_equals_sliced():
    model = network()
    space = cafenet.trace(model, torch.zeros(1, 3, 6, 6))
    harness = Harness(model, space.layout)
    before = {name: tensor.clone() for name, tensor in harness.buffers().items()}
    gatherer = harness.gatherer()
    for kept in ([0, 1, 2], [1, 4, 6], [0, 2, 3, 5], [0, 1, 2]):
        chosen = cuts(space.layout, Subnet(tuple(np.array(kept) for _ in space.groups)))
        wanted = slice_tensors({**harness.parameters(), **harness.buffers()}, space.layout, chosen)
        found = gatherer.part(chosen)
        assert list(found) == list(wanted)
        for name, tensor in wanted.items():
            assert found[name].dtype == tensor.dtype, name
            assert torch.equal(found[name], tensor), name
        for name in before:
            found[name].add_(1)
    for name, tensor in harness.buffers().items():
        assert torch.equal(tensor, before[name]), name


def test_the_plan_is_made_anew_for_another_type():
    model = network()
    space = cafenet.trace(model, torch.zeros(1, 3, 6, 6))
    harness = Harness(model, space.layout)
    chosen = cuts(space.layout, Subnet(tuple(np.array([1, 3]) for _ in space.groups)))
    assert harness.gatherer().part(chosen)["1.weight"].dtype == torch.float32
    model[1].double()
    part = harness.gatherer().part(chosen)
    assert (part["1.weight"].dtype, part["4.weight"].dtype) == (torch.float64, torch.float32)
    assert torch.equal(part["1.weight"], model[1].weight[[1, 3]])
    with torch.no_grad():
        model[1].weight.zero_()
    assert not harness.gatherer().part(chosen)["1.weight"].any()
