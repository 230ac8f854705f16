"""In-place ops and writes through views: names stay right when tensors share memory."""

import pytest
import torch
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, sizes, slots


def net(forward, **layers) -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(forward(net, x))), a=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5), **layers
    )


def test_in_place_arithmetic():
    def forward(net, x):
        y = net.a(x)
        y += net.b(x)
        y.mul_(2).relu_().clamp_(max=6)
        return y

    space = proven(net(forward, b=nn.Conv2d(3, 8, 1)), IMAGE)
    assert sizes(space) == {"a": (8, 1)}
    assert ("b.weight", 0) in slots(space, "a")


def write(net, x):
    y = net.a(x)
    y[:, : y.shape[1] // 2] = net.b(x)
    return y


def add(net, x):
    y = net.a(x)
    y[:, : y.shape[1] // 2].add_(net.b(x))
    return y


def view(net, x):
    y = net.a(x)
    y.view(y.shape[0], 2, -1, 8, 8)[:, 1].sub_(net.b(x))
    return y


@pytest.mark.parametrize("forward", [write, add, view])
@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
def test_write_through_a_view(forward, x: torch.Tensor):
    """What is written into one half of the channels is tied to both halves."""
    space = proven(net(forward, b=nn.Conv2d(3, 4, 1)), x)
    assert sizes(space) == {"a": (8, 2)}
    assert ("b.weight", 0) in slots(space, "a")
    assert space.extract({"a": 4}).b.out_channels == 2


def test_write_through_a_chunk():
    def forward(net, x):
        y = net.a(x)
        left, right = y.chunk(2, 1)
        left.mul_(right.sigmoid())
        return y

    assert sizes(proven(net(forward), IMAGE)) == {"a": (8, 2)}


def test_hard_coded_write_freezes():
    def forward(net, x):
        y = net.a(x)
        y[:, :4] = 0
        return y

    assert frozen_reason(net(forward), IMAGE, "a").startswith("does not let its width vary")


def test_swapped_halves_through_an_empty_tensor():
    def forward(net, x):
        y = net.a(x)
        half = y.shape[1] // 2
        out = torch.empty_like(y)
        out[:, :half], out[:, half:] = y[:, half:], y[:, :half]
        return out

    assert sizes(proven(net(forward), IMAGE)) == {"a": (8, 2)}


def test_temporal_shift():
    """TSM: a quarter of the channels moves one place forward, a quarter back, the rest stays."""

    def forward(net, x):
        y = net.a(x)
        out, quarter = torch.zeros_like(y), y.shape[1] // 4
        out[:, :quarter, 1:] = y[:, :quarter, :-1]
        out[:, quarter : 2 * quarter, :-1] = y[:, quarter : 2 * quarter, 1:]
        out[:, 2 * quarter :] = y[:, 2 * quarter :]
        return out

    assert sizes(proven(net(forward), IMAGE)) == {"a": (8, 4)}


def test_write_into_a_fresh_tensor_freezes():
    """Nothing says which channels a new tensor holds."""

    def forward(net, x):
        y = net.a(x)
        out = y.new_zeros(y.shape)
        out[:, :, 1:] = y[:, :, :-1]
        return out

    assert "fixed size" in frozen_reason(net(forward), IMAGE, "a")


def test_output_argument():
    def forward(net, x):
        y = net.a(x)
        torch.add(y, net.b(x), out=y)
        return y

    assert sizes(proven(net(forward, b=nn.Conv2d(3, 8, 1)), IMAGE)) == {"a": (8, 1)}


def test_write_past_autograd():
    def forward(net, x):
        y = net.a(x)
        y.data.add_(net.b(x))
        return y

    assert sizes(proven(net(forward, b=nn.Conv2d(3, 8, 1)), IMAGE)) == {"a": (8, 1)}


def test_replaced_data_freezes():
    """`y.data = z` is no op at all: the check run, which cuts both differently, sees another size."""

    def forward(net, x):
        y = net.a(x)
        y.data = net.b(x)
        return y

    assert "does not let its width vary" in frozen_reason(net(forward, b=nn.Conv2d(3, 8, 1)), IMAGE, "a")


def test_reshape_in_place_freezes():
    assert "no rule" in frozen_reason(net(lambda net, x: net.a(x).unsqueeze_(2).squeeze_(2)), IMAGE, "a")


def test_activation_kept_in_a_list_and_changed_later():
    def forward(net, x):
        kept = [net.a(x)]
        y = kept[0].relu_()
        kept.append(net.b(y))
        return kept[0] + kept[1]

    assert sizes(proven(net(forward, b=nn.Conv2d(8, 8, 1)), IMAGE)) == {"a": (8, 1)}


def test_names_do_not_outlive_their_tensors():
    """Freed activations give their addresses to new ones of another meaning."""

    def forward(net, x):
        total = net.a(x)
        for _ in range(20):
            net.b(total).relu()
            total = total + net.c(total).relu()
        return total

    model = net(forward, b=nn.Conv2d(8, 6, 1), c=nn.Conv2d(8, 8, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1), "b": (6, 1)}
