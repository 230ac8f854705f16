"""Forwards that look at shapes or values, or make constants."""

import random

import torch
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, reasons, sizes


def net(forward, **layers) -> nn.Module:
    return Forward(forward, conv=nn.Conv2d(3, 8, 3, padding=1), head=nn.Linear(8, 5), **layers)


def test_branch_on_the_image_size():
    def forward(net, x):
        x = net.conv(x)
        if x.shape[2] > 4:
            x = nn.functional.max_pool2d(x, 2)
        return net.head(pooled(x))

    assert sizes(proven(net(forward), IMAGE)) == {"conv": (8, 1)}


def test_branch_on_the_width_freezes():
    def forward(net, x):
        x = net.conv(x)
        return net.head(pooled(x.relu() if x.shape[1] == 8 else x.tanh()))

    assert "other ops run at other widths (aten.tanh.default)" in frozen_reason(net(forward), IMAGE, "conv")


def test_fewer_ops_at_another_width_freezes():
    def forward(net, x):
        x = net.conv(x)
        out = net.head(pooled(x))
        return out + 1 if x.shape[1] == 8 else out

    assert "fewer than at full width" in frozen_reason(net(forward), IMAGE, "conv")


def test_assertion_on_the_width_freezes():
    def forward(net, x):
        x = net.conv(x)
        assert x.shape[1] == 8, "eight channels, please"
        return net.head(pooled(net.after(x)))

    model = net(forward, after=nn.Conv2d(8, 6, 1))
    model.head = nn.Linear(6, 5)
    space = proven(model, IMAGE)
    assert sizes(space) == {"after": (6, 1)}
    assert "AssertionError: eight channels, please" in reasons(space)["conv"]


def test_code_that_reads_a_layers_size_follows_it():
    """Sizes that a forward takes from its layers are right, because these are set while a subnet runs."""

    def forward(net, x):
        x = net.conv(x)
        x = x.view(x.shape[0], net.conv.out_channels, -1)
        return net.head(x.mean(2).view(-1, net.head.in_features))

    space = proven(net(forward), IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.run(IMAGE, {"conv": 3}).equal(space.extract({"conv": 3})(IMAGE))


def test_code_that_keeps_a_size_of_its_own_freezes():
    def forward(net, x):
        return net.head(net.conv(x).view(x.shape[0], net.sizes["width"], -1).mean(2))

    reason = frozen_reason(net(forward, sizes={"width": 8}), IMAGE, "conv")
    assert reason.startswith("does not let its width vary: ")
    assert reason.endswith("to let it, take sizes from x.shape, or as they are from int attributes of the module")


def test_reading_a_value():
    """`.item()` does not work without values, so the run is repeated on real tensors."""

    def forward(net, x):
        x = net.conv(x)
        return net.head(pooled(x / max(1.0, x.abs().max().item())))

    space = proven(net(forward), TWO_IMAGES, masked=False)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.group("conv").mixes


def test_branch_on_a_value():
    def forward(net, x):
        return net.head(pooled(net.conv(x) if x.mean() > 0 else net.conv(-x)))

    for x in (IMAGE - 1, IMAGE + 1):
        assert sizes(proven(net(forward), x)) == {"conv": (8, 1)}


def test_in_place_change_of_the_input_stays_inside():
    """A model that normalises its input in place: neither tracing nor verifying touches the user's tensor."""

    def forward(net, x):
        x.sub_(0.5)
        scale = 1.0 if net.on_meta else float(x.abs().max() > -1)
        return net.head(pooled(net.conv(x) * scale))

    for on_meta in (True, False):
        x = torch.rand(2, 3, 8, 8)
        before = x.clone()
        assert sizes(proven(net(forward, on_meta=on_meta), x)) == {"conv": (8, 1)}
        assert x.equal(before)


def test_constants_made_on_the_cpu():
    def forward(net, x):
        grid = torch.linspace(0, 1, 8)[:, None] * torch.arange(8)
        x = net.conv(x) * grid + torch.tensor(2.0)
        return net.head(pooled(torch.where(torch.ones(8, 8) > 0, x, torch.zeros(1))))

    assert sizes(proven(net(forward), IMAGE)) == {"conv": (8, 1)}


def test_constants_made_like_the_activations():
    """`zeros_like` has the same channels; `new_zeros` of a shape has their number, by chance or at every width."""
    alike = net(lambda net, x: net.head(pooled(torch.maximum(net.conv(x), torch.zeros_like(net.conv(x))))))
    assert sizes(proven(alike, IMAGE)) == {"conv": (8, 1)}
    shaped = net(
        lambda net, x: net.head(pooled(torch.maximum(net.conv(x), x.new_zeros(1, net.conv(x).shape[1], 1, 1))))
    )
    assert sizes(proven(shaped, IMAGE)) == {"conv": (8, 1)}
    chance = net(lambda net, x: net.head(pooled(torch.maximum(net.conv(x), x.new_zeros(1, 8, 1, 1)))))
    assert "does not let its width vary" in frozen_reason(chance, IMAGE, "conv")


def test_loops_over_layers():
    model = Forward(
        lambda net, x: net.head(pooled([x := layer(x).relu() for layer in net.layers][-1])),
        layers=nn.ModuleList([nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)]),
        head=nn.Linear(8, 5),
    )
    assert sizes(proven(model, IMAGE)) == {"layers.0": (8, 1), "layers.1": (8, 1), "layers.2": (8, 1)}


def test_randomness_in_train_mode_only():
    """Layer drop by Python's random numbers does not reach the trace, which runs in eval mode."""

    def forward(net, x):
        x = net.conv(x)
        if net.training and random.random() < 0.5:
            return net.head(pooled(x))
        return net.head(pooled(x + net.extra(x)))

    model = net(forward, extra=nn.Conv2d(8, 8, 1)).train()
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


def test_no_grad_and_autocast_inside():
    def forward(net, x):
        with torch.no_grad():
            shift = net.conv(x).mean((2, 3), keepdim=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = net.conv(x) - shift
        return net.head(pooled(x.to(net.head.weight.dtype)))

    model = net(forward)
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


def test_hard_coded_channel_count_in_a_loop_freezes():
    def forward(net, x):
        x = net.conv(x)
        return net.head(torch.stack([x[:, channel].mean((1, 2)) for channel in range(8)], 1))

    assert frozen_reason(net(forward), IMAGE, "conv") == "is indexed by position in select"
