"""Gates: squeeze-and-excitation follows what it scales, a spatial gate of one channel broadcasts."""

import torch
from torch import nn

import cafenet
from cafenet.space.width_group import Frozen
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, sizes, slots


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.squeeze = nn.Conv2d(8, 2, 1, bias=False)
        self.excite = nn.Conv2d(2, 8, 1, bias=False)
        self.head = nn.Linear(8, 5, bias=False)

    def forward(self, x):
        x = self.conv(x)
        gate = self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu())
        return self.head(pooled(x * gate.sigmoid()))


def test_squeeze_and_excitation():
    space = proven(SqueezeExcite(), IMAGE)
    assert sizes(space) == {"conv": (8, 1), "squeeze": (2, 1)}
    assert slots(space, "conv") == {("conv.weight", 0), ("squeeze.weight", 1), ("excite.weight", 0), ("head.weight", 1)}
    # 64*27*8, then at one place 8*2, 2*8 and 8*5
    assert space.flops() == 13_824 + 16 + 16 + 40
    assert space.flops({"conv": 3, "squeeze": 1}) == 64 * 27 * 3 + 3 + 3 + 15


def test_linear_squeeze_and_excitation():
    def forward(net, x):
        x = net.conv(x)
        gate = net.excite(net.squeeze(pooled(x)).relu())
        return net.head(pooled(x * nn.functional.hardsigmoid(gate)[:, :, None, None]))

    model = Forward(
        forward, conv=nn.Conv2d(3, 8, 3), squeeze=nn.Linear(8, 4), excite=nn.Linear(4, 8), head=nn.Linear(8, 5)
    )
    assert sizes(proven(model, TWO_IMAGES)) == {"conv": (8, 1), "squeeze": (4, 1)}


def test_spatial_gate_with_one_output_channel():
    """A convolution to one channel is not depthwise, even where its input has as many channels as it has groups: 1."""

    def forward(net, x):
        x = net.conv(x)
        return net.head(pooled(x * net.gate(x).sigmoid()))

    model = Forward(
        forward,
        conv=nn.Conv2d(3, 8, 3, padding=1, bias=False),
        gate=nn.Conv2d(8, 1, 3, padding=1, bias=False),
        head=nn.Linear(8, 5, bias=False),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert Frozen("gate", 1, "has one channel") in space.frozen
    # 64*27*8, 64*9*8 and 8*5
    assert space.flops() == 13_824 + 4_608 + 40
    assert space.flops({"conv": 5}) == 64 * 27 * 5 + 64 * 9 * 5 + 25
    assert space.extract({"conv": 5}).gate.weight.shape == (1, 5, 3, 3)


def test_convolution_from_one_channel_to_one_channel():
    model = Forward(
        lambda net, x: net.head(pooled(net.wide(net.second(net.first(x))))),
        first=nn.Conv2d(3, 1, 1),
        second=nn.Conv2d(1, 1, 3),
        wide=nn.Conv2d(1, 8, 3),
        head=nn.Linear(8, 5),
    )
    assert sizes(proven(model, IMAGE)) == {"wide": (8, 1)}


def cbam(most):
    def forward(net, x):
        x = net.conv(x)
        gate = net.gate(torch.cat([most(x), x.mean(1, keepdim=True)], 1))
        return net.head(pooled(net.after(x * gate.sigmoid()).relu()))

    return Forward(
        forward,
        conv=nn.Conv2d(3, 8, 3),
        gate=nn.Conv2d(2, 1, 3, padding=1),
        after=nn.Conv2d(8, 6, 1),
        head=nn.Linear(6, 5),
    )


def test_gate_from_statistics_over_channels():
    """CBAM's spatial gate: the mean and maximum over channels change when one is dropped, so the group mixes."""
    space = proven(cbam(lambda x: x.max(1, keepdim=True).values), IMAGE)
    assert sizes(space) == {"conv": (8, 1), "after": (6, 1)}
    assert [group.mixes for group in space.groups] == [True, False]
    assert sizes(proven(cbam(lambda x: x.amax(1, keepdim=True)), IMAGE)) == sizes(space)


def test_gates_from_maxima_freeze_nothing_by_chance():
    """The number of the winning channel, which nobody reads, may lie where a tensor lay that was read and freed."""

    def forward(net, x):
        for conv, gate in zip(net.convs, net.gates, strict=True):
            x = conv(x).relu()
            x = x * gate(torch.cat([x.max(1)[0].unsqueeze(1), x.mean(1).unsqueeze(1)], 1)).sigmoid()
        return net.head(pooled(x))

    model = Forward(
        forward,
        convs=nn.ModuleList(nn.Conv2d(3 if n == 0 else 8, 8, 1) for n in range(12)),
        gates=nn.ModuleList(nn.Conv2d(2, 1, 1) for _ in range(12)),
        head=nn.Linear(8, 5),
    )
    assert [len(cafenet.trace(model, IMAGE, verify=False).groups) for _ in range(4)] == [12] * 4


def test_number_of_the_winning_channel_freezes():
    reason = frozen_reason(cbam(lambda x: x.max(1, keepdim=True).indices.float()), IMAGE, "conv")
    assert reason == "is told apart by position in max"
    assert frozen_reason(cbam(lambda x: x.argmax(1, keepdim=True).float()), IMAGE, "conv").endswith("in argmax")


def test_number_of_the_winning_channel_as_an_output_freezes():
    model = Forward(lambda net, x: net.conv(x).max(1), conv=nn.Conv2d(3, 8, 3))
    assert frozen_reason(model, IMAGE, "conv") == "is told apart by position in max"


def test_gate_broadcast_by_hand():
    """`expand_as` blows the gate up to the width of what it meets."""

    def forward(net, x):
        x = net.conv(x)
        return net.head(pooled(net.after(x * net.gate(x).sigmoid().expand_as(x))))

    model = Forward(
        forward, conv=nn.Conv2d(3, 8, 3), gate=nn.Conv2d(8, 1, 1), after=nn.Conv2d(8, 6, 1), head=nn.Linear(6, 5)
    )
    assert sizes(proven(model, TWO_IMAGES)) == {"conv": (8, 1), "after": (6, 1)}


def test_normalised_vector():
    """`normalize` divides by a norm over the channels that is expanded to their number."""
    model = Forward(
        lambda net, x: net.head(nn.functional.normalize(pooled(net.conv(x)), dim=1)),
        conv=nn.Conv2d(3, 8, 3),
        head=nn.Linear(8, 5),
    )
    space = proven(model, TWO_IMAGES, masked=False)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.group("conv").mixes


def test_expanded_output_keeps_its_width():
    def forward(net, x):
        x = net.conv(x)
        return x.mean(1, keepdim=True).expand_as(x)

    reason = frozen_reason(Forward(forward, conv=nn.Conv2d(3, 8, 3)), IMAGE, "conv")
    assert "the model's outputs have sizes" in reason
