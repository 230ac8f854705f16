"""Linear layers and parameters in matrix products, whichever op they end up in."""

import pytest
import torch
from torch import nn

import cafenet
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, sizes, slots


def places(x: torch.Tensor) -> torch.Tensor:
    """(N, C, H, W) as (N, H*W, C), which is not contiguous."""
    return x.flatten(2).transpose(1, 2)


def hidden(forward, weight: torch.Tensor) -> nn.Module:
    return Forward(forward, conv=nn.Conv2d(3, 8, 1), weight=nn.Parameter(weight), head=nn.Linear(6, 5, bias=False))


@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
@pytest.mark.parametrize(
    ("forward", "dims"),
    [
        (lambda net, x: net.head((pooled(net.conv(x)) @ net.weight).relu()), (0, 1)),
        (lambda net, x: net.head((places(net.conv(x)) @ net.weight).relu().mean(1)), (0, 1)),
        (lambda net, x: net.head((net.weight.t() @ net.conv(x).flatten(2)).relu().mean(2)), (0, 1)),
        (lambda net, x: net.head((net.weight.t() @ pooled(net.conv(x)).t()).t().relu()), (0, 1)),
        (
            lambda net, x: net.head(torch.einsum("ncl,co->nol", net.conv(x).flatten(2), net.weight).relu().mean(2)),
            (0, 1),
        ),
        (lambda net, x: net.head(nn.functional.linear(places(net.conv(x)), net.weight.t()).relu().mean(1)), (0, 1)),
    ],
    ids=["x @ w", "places @ w", "w @ places", "w @ x", "einsum", "linear"],
)
def test_parameter_in_a_product(forward, dims: tuple[int, int], x: torch.Tensor):
    model = hidden(forward, torch.randn(8, 6))
    space = proven(model, x)
    assert sizes(space) == {"conv": (8, 1), "weight": (6, 1)}
    assert ("weight", dims[0]) in slots(space, "conv")
    assert ("weight", dims[1]) in slots(space, "weight")
    slim = space.extract(channels={"conv": [1, 2], "weight": [0, 5]})
    assert slim.weight.equal(model.weight[[1, 2]][:, [0, 5]])


def test_costs_do_not_depend_on_the_op():
    """A linear layer on 64 places of two images: the same multiply-adds whether it runs as addmm or as bmm."""
    contiguous = Forward(
        lambda net, x: net.head(net.hidden(places(net.conv(x)).contiguous()).relu().mean(1)),
        conv=nn.Conv2d(3, 8, 1),
        hidden=nn.Linear(8, 6),
        head=nn.Linear(6, 5),
    )
    strided = Forward(lambda net, x: net.head(net.hidden(places(net.conv(x))).relu().mean(1)), **contiguous._modules)
    for model in (contiguous, strided):
        space = proven(model, TWO_IMAGES)
        assert sizes(space) == {"conv": (8, 1), "hidden": (6, 1)}
        assert space.flops() == 2 * (64 * (24 + 48) + 30)
        assert space.flops({"conv": 5, "hidden": 3}) == 2 * (64 * (15 + 15) + 15)


def test_channels_last_linear():
    """ConvNeXt's block without its norm: a linear layer on (N, H, W, C)."""
    model = Forward(
        lambda net, x: net.head(net.down(net.up(net.conv(x).permute(0, 2, 3, 1)).relu()).mean((1, 2))),
        conv=nn.Conv2d(3, 8, 1),
        up=nn.Linear(8, 12),
        down=nn.Linear(12, 6),
        head=nn.Linear(6, 5),
    )
    for x in (IMAGE, TWO_IMAGES):
        assert sizes(proven(model, x)) == {"conv": (8, 1), "up": (12, 1), "down": (6, 1)}


def test_mixer():
    """Token mixing reads the places of every channel: its cost is a product of three sizes."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 2, stride=2)
            self.tokens1 = nn.Linear(16, 10)
            self.tokens2 = nn.Linear(10, 16)
            self.channels1 = nn.Linear(8, 12)
            self.channels2 = nn.Linear(12, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            x = places(self.patches(x))
            x = x + self.tokens2(self.tokens1(x.transpose(1, 2)).relu()).transpose(1, 2)
            x = x + self.channels2(self.channels1(x).relu())
            return self.head(x.mean(1))

    for x in (IMAGE, TWO_IMAGES):
        space = proven(Mixer(), x)
        assert sizes(space) == {"patches": (8, 1), "tokens1": (10, 1), "channels1": (12, 1)}
        # an image: 16 places with 12*8, twice 8 channels with 16*10, twice 16 places with 8*12, 8*5
        assert space.flops() == len(x) * (1_536 + 2 * 1_280 + 2 * 1_536 + 40)
        widths = {"patches": 3, "tokens1": 4, "channels1": 5}
        assert space.flops(widths) == len(x) * (16 * 36 + 2 * 3 * 64 + 2 * 16 * 15 + 15)


def test_product_of_two_activations_freezes():
    """Scores and their use are attention: query, key and value keep their widths."""

    def forward(net, x):
        query, key, value = (places(layer(x)) for layer in (net.query, net.key, net.value))
        return net.head(((query @ key.mT).softmax(-1) @ value).mean(1))

    layers = {name: nn.Conv2d(3, 8, 1) for name in ("query", "key", "value")}
    model = Forward(forward, head=nn.Linear(8, 5), **layers)
    for layer in layers:
        assert "batched matrix product" in frozen_reason(model, TWO_IMAGES, layer)
        assert "batched matrix product" in frozen_reason(model, IMAGE, layer)


def test_product_over_places():
    """Two kinds of channels meet in every place; flattened together, only the wider kind may vary."""
    model = Forward(
        lambda net, x: net.head((net.conv(x).flatten(2) @ places(net.other(x))).flatten(1)),
        conv=nn.Conv2d(3, 8, 1),
        other=nn.Conv2d(3, 6, 1),
        head=nn.Linear(48, 5),
    )
    for x in (IMAGE, TWO_IMAGES):
        space = proven(model, x)
        assert sizes(space) == {"conv": (8, 1)}
        assert space.flops() == len(x) * (64 * 3 * 14 + 8 * 64 * 6 + 48 * 5)
        assert space.flops({"conv": 2}) == len(x) * (64 * 3 * 8 + 2 * 64 * 6 + 12 * 5)


@pytest.mark.parametrize("product", [torch.matmul, lambda a, x: torch.einsum("bij,bjc->bic", a, x)])
def test_dense_graph_network(product):
    """The adjacency is given, one for each graph: it mixes nodes, and channels pass."""

    def forward(net, x, adjacency):
        degree = adjacency.sum(-1, keepdim=True) + 1
        for layer in net.layers:
            x = product(adjacency / degree, layer(x)).relu()
        return net.head(x.mean(1))

    layers = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 6)])
    graph = (torch.zeros(2, 7, 3), torch.zeros(2, 7, 7))
    space = proven(Forward(forward, layers=layers, head=nn.Linear(6, 5)), graph)
    assert sizes(space) == {"layers.0": (8, 1), "layers.1": (6, 1)}
    # 7 nodes with 3*8 and 8*6, their 7 neighbours with 8 and 6 channels, the head once
    assert space.flops() == 2 * (7 * (24 + 48) + 49 * 14 + 30)


def test_one_weight_for_each_expert():
    model = Forward(
        lambda net, x: torch.bmm(torch.bmm(x.expand(4, -1, -1), net.up).relu(), net.down).sum(0),
        up=nn.Parameter(torch.randn(4, 6, 10)),
        down=nn.Parameter(torch.randn(4, 10, 5)),
    )
    space = proven(model, torch.zeros(7, 6))
    assert sizes(space) == {"up": (10, 1)}
    assert space.flops() == 4 * 7 * (60 + 50)


def test_experts_by_sorted_rows():
    """`torch._grouped_mm`: rows that belong to one expert lie together; it takes rows of whole 16 bytes only."""

    def forward(net, x):
        ends = torch.arange(8, 33, 8, dtype=torch.int32)
        hidden = torch._grouped_mm(x.to(torch.bfloat16), net.up.to(torch.bfloat16), offs=ends)
        return torch._grouped_mm(hidden.relu(), net.down.to(torch.bfloat16), offs=ends).float()

    model = Forward(forward, up=nn.Parameter(torch.randn(4, 16, 32)), down=nn.Parameter(torch.randn(4, 32, 8)))
    space = cafenet.trace(model, torch.zeros(32, 16))
    assert sizes(space) == {"up": (32, 8)}


def test_matrix_times_vector():
    model = Forward(
        lambda net, x: net.head(torch.mv(net.weight, x.mean(0)).relu()),
        weight=nn.Parameter(torch.randn(8, 3)),
        head=nn.Linear(8, 5),
    )
    assert sizes(proven(model, torch.zeros(2, 3))) == {"weight": (8, 1)}


def test_mixture_of_weights():
    """A convolution whose weight is a mixture of experts: the number of experts is a width, the filters are not."""

    def forward(net, x):
        shares = net.router(pooled(x)).softmax(1)
        weight = (shares @ net.experts.flatten(1)).view(8, 3, 1, 1)
        return net.head(pooled(nn.functional.conv2d(x, weight)))

    experts = nn.Parameter(torch.randn(4, 8, 3, 1, 1))
    model = Forward(forward, router=nn.Linear(3, 4), experts=experts, head=nn.Linear(8, 5))
    space = proven(model, IMAGE, masked=False)
    assert sizes(space) == {"router": (4, 1)}
    assert space.extract({"router": 3}).experts.shape == (3, 8, 3, 1, 1)
