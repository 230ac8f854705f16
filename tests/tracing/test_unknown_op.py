"""Ops without a rule freeze what flows into them; a rule of the user's makes it searchable."""

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TraceError
from cafenet.space.width_group import Frozen
from cafenet.tracing.rules import elementwise
from tests.helpers.networks import IMAGE, Forward, frozen_reason, pooled, proven, reasons, sizes


class Sorted(nn.Module):
    def forward(self, x):
        return x.sort(dim=2).values


def net(middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 1), middle, nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 5, 1))


def test_op_without_a_rule_freezes_with_its_name_and_place():
    space = proven(net(Sorted()), IMAGE)
    assert sizes(space) == {"2": (6, 1)}
    assert reasons(space)["0"] == (
        "flows into aten.sort.default, which has no rule; give one with trace(..., rules={torch.ops.aten.sort: rule}) "
        "(in 1)"
    )
    assert space.frozen[0] == Frozen("0", 8, reasons(space)["0"])


def test_rule_of_the_user():
    """Sorting along the height leaves the channels where they are."""

    def along_height(run, call):
        for out in call.outputs:
            run.label(out, run.labels(call.args[0]))

    for key in (torch.ops.aten.sort, torch.ops.aten.sort.default):
        space = proven(net(Sorted()), IMAGE, rules={key: along_height})
        assert sizes(space) == {"0": (8, 1), "2": (6, 1)}


def test_overload_goes_before_the_op():
    def refuse(run, call):
        raise AssertionError("the more general rule was used")

    rules = {torch.ops.aten.sort: refuse, torch.ops.aten.sort.default: elementwise.carry}
    assert sizes(proven(net(Sorted()), IMAGE, rules=rules)) == {"0": (8, 1), "2": (6, 1)}


def test_rule_replaces_ours():
    def keep(run, call):
        run.freeze(run.labels(call.args[0])[1], "is kept by my rule", call)

    space = proven(net(nn.Tanh()), IMAGE, rules={torch.ops.aten.tanh: keep})
    assert sizes(space) == {"2": (6, 1)}
    assert reasons(space)["0"] == "is kept by my rule (in 1)"


@torch.library.custom_op("cafenet_tests::double_rows", mutates_args=())
def double_rows(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=2)


@double_rows.register_fake
def _(x):
    n, c, h, w = x.shape
    return x.new_empty(n, c, 2 * h, w)


def test_custom_op():
    model = Forward(
        lambda net, x: net.head(pooled(double_rows(net.conv(x)))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5)
    )
    reason = frozen_reason(model, IMAGE, "conv")
    assert reason.startswith("flows into cafenet_tests.double_rows.default, which has no rule; give one with")

    def rows(run, call):
        n, c, _, w = run.labels(call.args[0])
        run.label(call.out, (n, c, None, w))

    space = proven(model, IMAGE, rules={torch.ops.cafenet_tests.double_rows: rows})
    assert sizes(space) == {"conv": (8, 1)}


def test_custom_op_without_a_shape_function_runs_on_real_tensors():
    @torch.library.custom_op("cafenet_tests::negated", mutates_args=())
    def negated(x: torch.Tensor) -> torch.Tensor:
        return -x

    model = nn.Sequential(nn.Conv2d(3, 8, 1), Forward(lambda net, x: negated(x)), nn.Conv2d(8, 5, 1))
    rules = {torch.ops.cafenet_tests.negated: elementwise.elementwise}
    space = cafenet.trace(model, IMAGE, rules=rules)
    assert sizes(space) == {"0": (8, 1)}


def test_custom_autograd_function():
    """What it runs inside is watched like anything else."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            gate = x.sigmoid()
            return gradient * gate * (1 + x * (1 - gate))

    space = proven(net(Forward(lambda net, x: Swish.apply(x))), IMAGE)
    assert sizes(space) == {"0": (8, 1), "2": (6, 1)}


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (lambda x: torch.fft.fft(x, dim=1).real, "_fft_r2c"),
        (lambda x: x.topk(8, dim=1).values, "topk"),
        (lambda x: torch.cdist(x, x), "cdist"),
        (lambda x: x.unfold(1, 8, 1)[:, 0].movedim(-1, 1), "unfold"),
    ],
)
def test_exotic_ops_freeze(op, name: str):
    space = proven(net(nn.Sequential(Forward(lambda net, x: op(x)), nn.AdaptiveAvgPool2d(4))), IMAGE)
    assert sizes(space) == {"2": (6, 1)}
    assert name in reasons(space)["0"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([], "must be a dict from ops to functions"),
        ({"cat": elementwise.carry}, "rules must map ops such as torch.ops.aten.cat"),
        ({torch.cat: elementwise.carry}, "rules must map ops such as torch.ops.aten.cat"),
        ({torch.ops.aten.cat: None}, "rules must map ops such as torch.ops.aten.cat"),
    ],
)
def test_bad_rules(rules, message: str):
    with pytest.raises(TraceError, match=message):
        cafenet.trace(net(nn.ReLU()), IMAGE, rules=rules)
