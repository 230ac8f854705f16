"""Parameters that the eval run does not touch: train-only heads are found, dead ones are listed."""

import pytest
import torch
from torch import nn

from tests.helpers.networks import IMAGE, Forward, pooled, proven, reasons, sizes, slots


class Auxiliary(nn.Module):
    """GoogLeNet's habit: in train mode a second head reads an early layer."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Conv2d(3, 8, 1)
        self.late = nn.Conv2d(8, 6, 1)
        self.drop = nn.Dropout2d()
        self.head = nn.Linear(6, 5)
        self.inner = nn.Conv2d(8, 4, 1)
        self.norm = nn.BatchNorm1d(4)
        self.aux = nn.Linear(4, 5)

    def forward(self, x):
        x = self.early(x)
        out = self.head(pooled(self.drop(self.late(x))))
        return (out, self.aux(self.norm(pooled(self.inner(x))))) if self.training else out


@pytest.mark.parametrize("training", [True, False])
def test_train_only_head(training: bool):
    model = Auxiliary().train(training)
    space = proven(model, IMAGE)
    assert sizes(space) == {"early": (8, 1), "late": (6, 1), "inner": (4, 1)}
    assert ("inner.weight", 1) in slots(space, "early")
    assert reasons(space) == {"head": "is an output of the model", "aux": "is an output of the model"}
    # FLOPs are those of eval mode, params include the second head
    assert space.flops() == 64 * (24 + 48) + 30
    assert space.params() == 32 + 54 + 35 + 36 + 8 + 25
    slim = space.extract({"early": 3, "late": 2, "inner": 1}).train()
    assert [out.shape for out in slim(torch.zeros(2, 3, 8, 8))] == [(2, 5), (2, 5)]
    assert model.training is training


def test_unused_layers_are_listed_and_left_alone():
    model = Forward(
        lambda net, x: net.head(pooled(net.conv(x))),
        conv=nn.Conv2d(3, 8, 1),
        dead=nn.Conv2d(8, 7, 1),
        token=nn.Parameter(torch.zeros(3)),
        head=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    unused = {name for name, reason in reasons(space).items() if reason == "is not used when the model runs"}
    assert unused == {"dead", "token"}
    slim = space.extract({"conv": 3})
    assert slim.dead.weight.equal(model.dead.weight)
    assert space.params({"conv": 3}) == 12 + 63 + 3 + 20


def test_dropped_channels_do_not_freeze_in_the_train_run():
    """Dropout2d draws a mask of full width in train mode; an unused layer makes that run happen."""
    model = Forward(
        lambda net, x: net.head(pooled(net.drop(net.conv(x)))),
        conv=nn.Conv2d(3, 8, 1),
        drop=nn.Dropout2d(),
        dead=nn.Linear(3, 3),
        head=nn.Linear(8, 5),
    ).train()
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


def test_model_that_cannot_train():
    def forward(net, x):
        if net.training:
            raise RuntimeError("for inference only")
        return net.head(pooled(net.conv(x)))

    model = Forward(forward, conv=nn.Conv2d(3, 8, 1), dead=nn.Linear(3, 3), head=nn.Linear(8, 5)).train()
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert reasons(space)["dead"] == "is not used when the model runs"


def test_size_fixed_by_the_train_only_head():
    model = Auxiliary()
    model.norm = Forward(lambda net, x: x.view(-1, 4))
    space = proven(model, IMAGE)
    assert sizes(space) == {"early": (8, 1), "late": (6, 1)}
    assert reasons(space)["inner"].startswith("does not let its width vary")


def test_result_that_nobody_reads():
    model = Forward(
        lambda net, x: (net.side(net.conv(x)), net.head(pooled(net.conv(x))))[1],
        conv=nn.Conv2d(3, 8, 1, bias=False),
        side=nn.Conv2d(8, 6, 1, bias=False),
        head=nn.Linear(8, 5, bias=False),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1), "side": (6, 1)}
    # the convolution runs twice
    assert space.flops() == 64 * (24 + 48 + 24) + 40
