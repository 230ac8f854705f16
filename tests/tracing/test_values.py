"""Forwards that read values: what they see is meta as long as possible, and the space is the same as without them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import flop_registry, register_flop_formula

import cafenet
from cafenet.errors import TraceError
from tests.helpers.networks import Forward, proven, reasons, sizes

TOKENS = torch.randn(1, 5, 8)


class Attention(nn.Module):
    """8 features in 2 heads of 4, 16 inside the MLP; `read` says what its forward reads."""

    def __init__(self, read) -> None:
        super().__init__()
        self.read = read
        self.qkv, self.up, self.down, self.head = (nn.Linear(*size) for size in ((8, 24), (8, 16), (16, 8), (8, 3)))

    def forward(self, x):
        x = self.read(self, x)
        mixed = self.qkv(x)
        q, k, v = mixed.view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = x + scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.head(x + self.down(self.up(x).relu()))


FLOPS = 5 * (8 * 24 + 2 * 8 * 16 + 8 * 3) + 2 * 2 * 5 * 5 * 4


def of_the_input(net, x):
    return x if bool((x > -100).any()) else -x


def of_a_result(net, x):
    return x if net.qkv(x).sum().item() > -1e9 else -x


def through_a_list(net, x):
    return x * max(1.0, *x[0, :, 0].tolist())


def by_mask(net, x):
    return x[x.sum((0, 2)).isfinite()[None]].view(x.shape)


def of_a_constant(net, x):
    table = torch.arange(5, device=x.device)
    return x if table.max().item() == 4 else x[:, :0]


def with_numpy(net, x):
    return x * float(np.abs(x.numpy()).max() > -1)


def in_place(net, x):
    seen = torch.zeros(5, device=x.device)
    seen[1:3] = x[0, 1:3, 0]
    return x if seen[3].item() == 0 else x[:, :0]


@pytest.mark.parametrize(
    "read", [of_the_input, through_a_list, by_mask, of_a_constant, with_numpy, in_place], ids=lambda f: f.__name__
)
def test_same_space_whatever_is_read(read):
    plain = proven(Attention(lambda net, x: x), TOKENS)
    space = proven(Attention(read), TOKENS)
    assert sizes(space) == sizes(plain) == {"up": (16, 1)}
    assert reasons(space) == reasons(plain)
    assert space.flops() == FLOPS
    assert space.flops({"up": 3}) == plain.flops({"up": 3})


def test_value_that_depends_on_parameters():
    space = proven(Attention(of_a_result), TOKENS)
    assert sizes(space) == {"up": (16, 1)}
    assert space.flops() == FLOPS + 5 * 8 * 24


def test_model_sees_meta_tensors_while_it_reads_values():
    """So PyTorch runs the ops of meta tensors, and no kernel that hides its products."""

    def read(net, x):
        assert x.is_meta
        return of_the_input(net, x)

    assert cafenet.trace(Attention(read), TOKENS).flops() == FLOPS


class Masks(nn.Module):
    """Takes a size from 4 to 100 from a value that differs at other widths, as detectors paste masks by boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(*size) for size in ((4, 8), (8, 8), (8, 3)))

    def forward(self, x):
        hidden = self.second(self.first(x).relu())
        size = 4 + int(hidden.abs().sum() * 1000) % 97
        picture = nn.functional.interpolate(hidden.sum(-1)[:, None], size=size)
        return self.head(hidden), picture


def test_sizes_that_are_taken_from_values_freeze_nothing():
    """Neither width is at fault if the picture has another size, since its size comes from a sum of values."""
    torch.manual_seed(0)
    space = cafenet.trace(Masks().eval(), torch.randn(1, 5, 4))
    assert sizes(space) == {"first": (8, 1), "second": (8, 1)}
    assert not any("let its width vary" in each.reason for each in space.frozen)


def test_numbers_of_the_trace_hide_no_other_fault():
    """The width of `first` stays whole: a view fixes it at 8. That of `second` may vary."""

    class Fixed(Masks):
        def forward(self, x):
            hidden = self.second(self.first(x).view(5, 8).relu())
            size = 4 + int(hidden.abs().sum() * 1000) % 97
            return self.head(hidden), nn.functional.interpolate(hidden.sum(-1)[None, None], size=size)

    torch.manual_seed(0)
    space = cafenet.trace(Fixed().eval(), torch.randn(1, 5, 4))
    assert sizes(space) == {"second": (8, 1)}


def test_weights_without_values():
    """A model on the meta device may read its real inputs."""
    with torch.device("meta"):
        model = Attention(of_the_input)
    assert cafenet.trace(model, TOKENS).flops() == FLOPS
    with pytest.raises(TraceError, match="its forward raised"):
        cafenet.trace(Attention(of_a_result).to("meta"), TOKENS)


def test_fused_attention_that_the_model_insists_on():
    class Fused(Attention):
        def forward(self, x):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return super().forward(x)

    for read in (lambda net, x: x, of_the_input, with_numpy):
        assert proven(Fused(read), TOKENS).flops() == FLOPS


def test_recurrent_layer_on_real_tensors():
    """On a CPU PyTorch runs a whole LSTM layer as one op, if numbers are float32."""
    parts = {"lstm": nn.LSTM(8, 6, batch_first=True), "up": nn.Linear(6, 16), "head": nn.Linear(16, 3)}
    for read in (lambda net, x: x, with_numpy):
        model = Forward(lambda net, x, read=read: net.head(net.up(net.lstm(read(net, x))[0]).relu()), **parts)
        # 4 gates of 6 for 8 inputs and 6 states
        assert cafenet.trace(model, TOKENS).flops() == 5 * (4 * 6 * (8 + 6) + 6 * 16 + 16 * 3)


def test_parameters_that_the_forward_writes():
    """A forward that clips its own weights reads values, too: the user's weights are as before."""

    def read(net, x):
        net.up.weight.data.mul_(0.5)
        net.head.weight.detach().zero_()
        return of_a_result(net, x)

    model = Attention(read)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for reading in (read, lambda net, x: with_numpy(net, read(net, x))):
        model.read = reading
        assert sizes(cafenet.trace(model, TOKENS)) == {"up": (16, 1)}
        assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())


@torch.library.custom_op("cafenet_tests::times", mutates_args=())
def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight


@times.register_fake
def _(x, weight):
    return x.new_empty(*x.shape[:-1], weight.shape[1])


def hidden_product(**options) -> cafenet.WidthSpace:
    model = Forward(
        lambda net, x: net.head(times(net.up(net.first(x).relu()), net.weight)),
        first=nn.Linear(8, 4),
        up=nn.Linear(4, 6),
        weight=nn.Parameter(torch.randn(6, 7)),
        head=nn.Linear(7, 3),
    )
    return cafenet.trace(model, TOKENS, **options)


def keep(run, call):
    for tensor in call.tensors:
        for label in run.labels(tensor):
            run.freeze(label, "is kept", call)


def test_product_that_nobody_can_price_is_an_error():
    with pytest.raises(TraceError, match=r"nothing says how many multiply-adds cafenet_tests.times.default"):
        hidden_product()


def test_product_of_train_mode_needs_no_price():
    model = Forward(
        lambda net, x: net.head(net.up(x).relu()) + (times(x, net.weight) if net.training else 0),
        up=nn.Linear(8, 6),
        weight=nn.Parameter(torch.randn(8, 3)),
        head=nn.Linear(6, 3),
    )
    assert cafenet.trace(model, TOKENS).flops() == 5 * (8 * 6 + 6 * 3)


def test_formula_of_the_user():
    """FLOPs of PyTorch's formulas are two for each multiply-add."""
    register_flop_formula(torch.ops.cafenet_tests.times)(lambda x, weight, **_: 2 * x[0] * x[1] * x[2] * weight[1])
    try:
        space = hidden_product()
        assert cafenet.verify(space, TOKENS).problems == []
    finally:
        del flop_registry[torch.ops.cafenet_tests.times]
    assert sizes(space) == {"first": (4, 1)}
    assert space.flops() == 5 * (8 * 4 + 4 * 6 + 6 * 7 + 7 * 3)


def test_rule_of_a_product_must_charge():
    rules = {torch.ops.aten.addmm: keep, torch.ops.aten.linear: keep}
    with pytest.raises(TraceError, match=r"that of aten.addmm.default in first charged none; call run.cost"):
        hidden_product(rules=rules)


def test_verify_finds_what_the_trace_did_not_count():
    """Once for an op that nobody knows, once for products that a rule passes off as free."""

    def free(run, call):
        keep(run, call)
        run.cost(0)

    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), Forward(lambda net, x: x @ x.mT))
    space = cafenet.trace(model, TOKENS, rules={torch.ops.aten.bmm: free})
    (problem, *_) = cafenet.verify(space, TOKENS, trials=1).problems
    assert "FLOPs and params are priced at" in problem

    model = Forward(
        lambda net, x: net.head(times(net.up(x).relu(), net.weight)),
        up=nn.Linear(8, 6),
        weight=nn.Parameter(torch.randn(6, 7)),
        head=nn.Linear(7, 3),
    )

    def untold(run, call):
        run.tie(run.labels(call.args[0])[-1], run.labels(call.args[1])[0], call)
        run.cost(0)

    space = cafenet.trace(model, TOKENS, rules={torch.ops.cafenet_tests.times: untold})
    problems = cafenet.verify(space, TOKENS, trials=1).problems
    assert any("no formula counts cafenet_tests.times.default" in problem for problem in problems)
