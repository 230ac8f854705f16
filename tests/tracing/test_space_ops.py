"""Ops over space and by number, beside pooling: channels pass, and what the ops go along is kept."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled, proven, reasons, sizes


def net(forward, out: int = 8) -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(forward(net.conv(x)))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(out, 5)
    )


def grid(x: torch.Tensor) -> torch.Tensor:
    places = torch.linspace(-1, 1, 8, dtype=x.dtype).expand(8, 8)
    return torch.stack([places, places.T], -1).expand(len(x), 8, 8, 2)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: torch.fft.fft2(x).real,
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5),
        lambda x: torch.view_as_real(torch.fft.fft(x)).mean(-1),
        lambda x: torch.view_as_complex(torch.stack([x, x], -1)).abs(),
        lambda x: x.topk(4, dim=2).values,
        lambda x: x.unfold(2, 4, 4).mean(-1),
        lambda x: functional.fold(functional.unfold(x, 3, padding=1), (8, 8), 3, padding=1),
        lambda x: functional.grid_sample(x, grid(x), align_corners=True),
        lambda x: x.gather(2, torch.zeros(x.shape, dtype=torch.long)),
        lambda x: torch.zeros_like(x).index_add_(3, torch.arange(8), x),
        lambda x: torch.zeros(x.shape).to(x.dtype).index_add(2, torch.arange(8), x),
        lambda x: torch.zeros(x.shape).to(x.dtype).index_put((torch.arange(len(x)),), x),
        lambda x: torch.ops.aten.index_put(x, [None, None, torch.arange(4)], x[:, :, 4:]),
        lambda x: x[:, :, torch.arange(4), torch.arange(4)],
        lambda x: x[torch.arange(len(x))[:, None], :, torch.arange(8)].movedim(-2, 1),
    ],
    ids=[
        *("fft2", "rfft2", "view_as_real", "view_as_complex", "topk", "unfold", "fold", "grid_sample", "gather"),
        *("index_add_", "index_add", "index_put", "index_put in space", "two indices", "indices apart"),
    ],
)
def test_channels_pass(forward):
    assert sizes(proven(net(forward), TWO_IMAGES)) == {"conv": (8, 1)}


def test_rows_added_to_zeros_of_the_inputs_size():
    """As in a mixture of experts: rows are picked, worked on, and added where they came from."""

    def forward(net, x):
        x = net.stem(x)
        out = torch.zeros((x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
        for rows, expert in zip(torch.arange(6).view(2, 3), net.experts, strict=True):
            out.index_add_(0, rows, expert(x[rows]))
        return net.head(x + out)

    experts = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    model = Forward(forward, stem=nn.Linear(3, 8), experts=experts, head=nn.Linear(8, 5))
    space = proven(model, torch.zeros(6, 3))
    assert sizes(space) == {"stem": (8, 1)}


@pytest.mark.parametrize("training", [False, True])
def test_masked_tokens_get_a_learned_vector(training: bool):
    """As in Wav2Vec2: the vector goes with the features of the stream, wherever the mask is."""

    def forward(net, x):
        x = net.stem(x)
        x[torch.tensor([[True, False, True, False, False, False]] * 2)] = net.blank
        return net.head(x)

    model = Forward(forward, stem=nn.Linear(3, 8), head=nn.Linear(8, 5)).train(training)
    model.blank = nn.Parameter(torch.randn(8))
    space = proven(model, torch.zeros(2, 6, 3))
    assert sizes(space) == {"stem": (8, 1)}
    assert space.extract({"stem": 3}).blank.shape == (3,)


def test_channels_that_are_written_by_number_are_kept():
    def forward(x):
        x[:, torch.arange(4)] = 0.0
        return x

    model = nn.Sequential(net(forward), nn.ReLU(), nn.Linear(5, 4), nn.Linear(4, 5))
    assert "is indexed by a tensor" in reasons(proven(model, IMAGE))["0.conv"]


def test_places_that_a_layer_computes_are_kept():
    def forward(net, x):
        places = net.places(x).permute(0, 2, 3, 1)
        return net.head(pooled(functional.grid_sample(net.conv(x), places, align_corners=True)))

    model = Forward(forward, places=nn.Conv2d(3, 2, 1), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert "grid_sampler_2d" in reasons(space)["places"]


def test_a_part_written_into_zeros_is_kept():
    """The whole would not know of the channels that were written into a part of it."""

    def forward(x):
        out = x.new_zeros(x.shape)
        out.transpose(2, 3).copy_(x)
        return out + x

    model = nn.Sequential(net(forward), nn.Linear(5, 4), nn.Linear(4, 5))
    space = proven(model, IMAGE)
    assert "0.conv" in reasons(space)
