"""The oracle itself: it must find every way in which a width space can be wrong."""

import dataclasses

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TraceError
from cafenet.space.cost import Cost, Product
from cafenet.space.layout import Layout
from cafenet.tracing.rules import elementwise
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled


def residual() -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled((net.a(x) + net.b(x)).relu())),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 8, 1),
        head=nn.Linear(8, 5),
    )


def chunked() -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(torch.mul(*net.a(x).chunk(2, 1)))), a=nn.Conv2d(3, 8, 1), head=nn.Linear(4, 5)
    )


def claim(run, call):
    """A wrong rule: the result looks like the first operand, and nothing is tied."""
    run.label(call.out, run.labels(call.args[0]))


@pytest.fixture
def space() -> cafenet.WidthSpace:
    return cafenet.trace(residual(), IMAGE)


def test_result(space: cafenet.WidthSpace):
    result = cafenet.verify(space, IMAGE, trials=8)
    assert result.ok
    assert (result.trials, result.dtype, result.problems) == (8, torch.float64, [])
    assert result.max_extract_error <= 1e-12
    assert 0 < result.max_masked_error <= 1e-12  # sums in another order: compared, and not bit for bit the same
    assert cafenet.verify(space, IMAGE, trials=8) == result
    assert cafenet.verify(space, IMAGE, trials=8, seed=1) != result


def test_missing_tie_raises_in_a_subnet():
    space = cafenet.trace(residual(), IMAGE, rules={torch.ops.aten.add.Tensor: claim}, verify=False)
    result = cafenet.verify(space, IMAGE, trials=2)
    assert not result.ok
    assert any("a subnet raised RuntimeError: The size of tensor a" in problem for problem in result.problems)


def test_tracing_checks_itself():
    """The same wrong rule with `verify=True`: the check run finds both groups and freezes them."""
    with pytest.raises(TraceError, match="every layer is frozen") as caught:
        cafenet.trace(residual(), IMAGE, rules={torch.ops.aten.add.Tensor: claim})
    assert "a: does not let its width vary" in str(caught.value)


def swapped(layout: Layout, tensor: str, dim: int) -> Layout:
    """The layout with the channels of one dimension in another order: right shapes, wrong values."""
    patterns = [*layout.patterns, layout.patterns[layout.axes[tensor][dim]][::-1].copy()]
    axes = {name: dict(dims) for name, dims in layout.axes.items()}
    axes[tensor][dim] = len(patterns) - 1
    return dataclasses.replace(layout, patterns=tuple(patterns), axes=axes)


def test_wrong_channels_are_seen_by_the_masked_run(space: cafenet.WidthSpace):
    """In place and extracted, both wrong in the same way, agree; only masking tells."""
    wrong = dataclasses.replace(space, layout=swapped(space.layout, "b.weight", 0))
    result = cafenet.verify(wrong, IMAGE, trials=4)
    assert result.max_extract_error <= 1e-12
    assert result.max_masked_error > 0.01
    assert any("the sliced model differs from the masked one" in problem for problem in result.problems)


def test_wrong_flops(space: cafenet.WidthSpace):
    units = space.full_widths.values()
    cost = Cost([*space.flops_cost.products, Product(1, ())], torch.tensor(list(units)).numpy())
    result = cafenet.verify(dataclasses.replace(space, flops_cost=cost), IMAGE, trials=1)
    (problem,) = result.problems
    assert problem.startswith("FLOPs and params are priced at (")


def test_wrong_attribute():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(4, 8), nn.Conv2d(8, 5, 1))
    space = cafenet.trace(model, IMAGE)
    kept = tuple(slot for slot in space.layout.attributes if slot.attribute != "num_groups")
    wrong = dataclasses.replace(space, layout=dataclasses.replace(space.layout, attributes=kept))
    assert not cafenet.verify(wrong, IMAGE, trials=3).ok


def test_rule_that_ties_the_wrong_channels():
    """A shuffle that is taken for no shuffle at all: sizes fit, values do not."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ChannelShuffle(2), nn.Conv2d(8, 5, 1))
    rules = {getattr(torch.ops.aten, name): elementwise.carry for name in ("channel_shuffle", "native_channel_shuffle")}
    for x in (IMAGE, TWO_IMAGES):
        assert cafenet.verify(cafenet.trace(model, x), x).ok
        wrong = cafenet.trace(model, x, rules=rules, verify=False)
        assert not cafenet.verify(wrong, x, trials=3).ok


def test_outputs_that_say_nothing():
    model = Forward(lambda net, x: net.head(pooled(net.a(x))) * 0, a=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    result = cafenet.verify(cafenet.trace(model, IMAGE), IMAGE, trials=1)
    assert any("the output is 0.0 under random weights" in problem for problem in result.problems)
    model = Forward(lambda net, x: net.head(pooled(net.a(x))).argmax(1), a=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    result = cafenet.verify(cafenet.trace(model, IMAGE), IMAGE, trials=1)
    assert any("no floating-point tensor" in problem for problem in result.problems)


def test_one_output_that_says_nothing():
    """A loss that is off in eval mode: the others are compared all the same."""
    parts = {"a": nn.Conv2d(3, 8, 1), "head": nn.Linear(8, 5)}
    model = Forward(lambda net, x: (net.head(pooled(net.a(x))), x.new_zeros(()), x.new_zeros(0, 4)), **parts)
    space = cafenet.trace(model, IMAGE)
    assert cafenet.verify(space, IMAGE).problems == []
    wrong = dataclasses.replace(space, layout=swapped(space.layout, "head.weight", 1))
    assert any("differs from the masked one" in each for each in cafenet.verify(wrong, IMAGE, trials=4).problems)


def test_model_that_insists_on_single_precision():
    model = Forward(lambda net, x: net.head(pooled(net.a(x.float()))), a=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    result = cafenet.verify(cafenet.trace(model, IMAGE), IMAGE)
    assert result.ok
    assert result.dtype == torch.float32


def test_nothing_of_the_users_changes(space: cafenet.WidthSpace):
    x = torch.rand(1, 3, 8, 8)
    before = x.clone(), {name: tensor.clone() for name, tensor in space.model.state_dict().items()}
    state = torch.get_rng_state()
    cafenet.verify(space, x)
    assert x.equal(before[0])
    assert all(tensor.equal(before[1][name]) for name, tensor in space.model.state_dict().items())
    assert torch.get_rng_state().equal(state)


def test_complex_numbers_are_compared():
    model = nn.Sequential(nn.Linear(4, 8, dtype=torch.complex64), nn.Linear(8, 3, dtype=torch.complex64))
    x = torch.zeros(2, 4, dtype=torch.complex64)
    space = cafenet.trace(model, x)
    assert [(group.name, group.channels) for group in space.groups] == [("0", 8)]
    result = cafenet.verify(space, x)
    assert result.ok
    assert result.max_masked_error > 0, "sums in another order differ in the last digit, so something was compared"
