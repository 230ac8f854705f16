"""Example inputs and models of all kinds; the model comes back as it was."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.fx.immutable_collections import immutable_dict

import cafenet
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, contents, pooled, proven, reasons, sizes


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 8, 1)
        self.vector = nn.Linear(4, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, image, vector=None, *, scale: float = 1.0):
        x = pooled(self.image(image))
        if vector is not None:
            x = x + self.vector(vector)
        return self.head(x * scale)


@pytest.mark.parametrize(
    "inputs",
    [
        (IMAGE, torch.zeros(1, 4)),
        [IMAGE, torch.zeros(1, 4)],
        {"image": IMAGE, "vector": torch.zeros(1, 4)},
        {"vector": torch.zeros(1, 4), "scale": 0.5, "image": IMAGE},
    ],
    ids=["tuple", "list", "dict", "dict with a number"],
)
def test_tuple_or_dict(inputs):
    space = proven(TwoInputs(), inputs)
    assert sizes(space) == {"image": (8, 1)}
    # 64*3*8 + 4*8 + 8*5
    assert space.flops() == 1_536 + 32 + 40
    assert space.run(inputs, {"image": 3}).shape == (1, 5)


def test_single_tensor_leaves_the_other_input_unused():
    space = proven(TwoInputs(), IMAGE)
    assert space.flops() == 1_536 + 40
    assert reasons(space)["vector"] == "is not used when the model runs"


def test_nested_inputs():
    model = Forward(
        lambda net, batch, extra: net.head(pooled(net.conv(batch["image"]) + net.other(extra[0][1]))),
        conv=nn.Conv2d(3, 8, 1),
        other=nn.Conv2d(3, 8, 1),
        head=nn.Linear(8, 5),
    )
    assert sizes(proven(model, ({"image": IMAGE}, [(None, IMAGE)]))) == {"conv": (8, 1)}


@pytest.mark.parametrize("training", [True, False])
def test_mode_stays(training: bool):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Dropout(), nn.Conv2d(8, 5, 1)).train(training)
    model[1].eval()  # a frozen batch norm, as users like it
    proven(model, IMAGE)
    assert [module.training for module in model.modules()] == [training, training, False, training, training]


@pytest.mark.parametrize("training", [True, False])
def test_nothing_changes(training: bool):
    """Weights, buffers (also of batch norm in train mode), attributes and gradients, through everything we do."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(4, 8),
        nn.Flatten(),
        nn.LayerNorm(288),
        nn.Linear(288, 5),
    ).train(training)
    state, before, x = copy.deepcopy(model.state_dict()), contents(model), torch.rand(2, 3, 8, 8)
    same = x.clone()
    space = cafenet.trace(model, x)
    assert cafenet.verify(space, x).ok
    space.run(x, {"0": 4}).sum().backward()
    model.zero_grad()
    slim = space.extract({"0": 4})
    slim(x).sum().backward()
    with torch.no_grad():
        for tensor in slim.state_dict().values():
            tensor.zero_()
    assert contents(model) == before
    assert x.equal(same)
    for name, tensor in model.state_dict().items():
        assert tensor.equal(state[name])
    assert not any(hasattr(tensor, "_cafenet_labels") for tensor in (*model.parameters(), *model.buffers(), x))


def test_what_a_forward_keeps_is_taken_out_again():
    """A table made on first use and the last activations would otherwise stay behind, without values."""

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)
            self.head = nn.Linear(8, 5)
            self.table = self.last = None
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.table is None:
                self.table = torch.linspace(0, 1, 8, device=x.device, dtype=x.dtype)
                self.register_buffer("mask", torch.ones(8, 1, device=x.device, dtype=x.dtype), persistent=False)
            self.last = self.conv(x) * self.table * self.mask
            return self.head(pooled(self.last))

    model = Keeping()
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}
    assert (model.table, model.last, model.calls) == (None, None, 0)
    model(IMAGE)
    space = proven(model, IMAGE)
    assert (model.table.device.type, model.last.device.type, model.calls) == ("cpu", "cpu", 1)
    assert space.extract({"conv": 3}).conv.out_channels == 3  # although `last` has a history of gradients


def test_what_a_forward_keeps_in_containers_is_taken_out_again():
    """timm's LeViT keeps its attention biases by device: filled by one run, the table would be missed in the next."""

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)
            self.head = nn.Linear(8, 5)
            self.tables, self.nested, self.seen, self.outputs = {}, {"by size": [{}]}, set(), []
            self.conv.register_forward_hook(lambda module, args, output: self.outputs.append(output))

        def forward(self, x):
            for tables in (self.tables, self.nested["by size"][0]):
                if x.shape[-1] not in tables:
                    tables[x.shape[-1]] = torch.linspace(0, 1, x.shape[-1], device=x.device, dtype=x.dtype)
            self.seen.add(x.device.type)
            return self.head(pooled(self.conv(x) * self.tables[8] + self.nested["by size"][0][8]))

    model = Keeping()
    tables = model.tables
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}
    assert (model.tables, model.nested, model.seen, model.outputs) == ({}, {"by size": [{}]}, set(), [])
    model(IMAGE)
    kept = tables[8]
    space = proven(model, IMAGE)
    assert model.tables is tables
    assert tables[8] is kept
    assert (model.seen, len(model.outputs)) == ({"cpu"}, 1)
    assert space.extract({"conv": 3})(IMAGE).shape == (1, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_number_types(dtype: torch.dtype):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 1)).to(dtype)
    x = torch.rand(1, 3, 8, 8, dtype=dtype)
    space = proven(model, x)
    assert sizes(space) == {"0": (8, 1)}
    slim = space.extract({"0": 3})
    assert all(parameter.dtype == dtype for parameter in slim.parameters())
    assert slim(x).dtype == space.run(x, {"0": 3}).dtype == dtype


def test_memory_formats():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 3)).to(memory_format=torch.channels_last)
    x = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert sizes(proven(model, x)) == {"0": (8, 1)}


def test_model_on_meta():
    """A model without values can be traced and priced."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 5, 1))
    space = cafenet.trace(model, IMAGE)
    assert space.flops() == 64 * (24 + 40)
    assert space.extract({"0": 3})[0].weight.shape == (3, 3, 1, 1)


def test_inside_inference_mode():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 1))
    with torch.inference_mode():
        x = torch.rand(1, 3, 8, 8)
        assert sizes(proven(model, x)) == {"0": (8, 1)}
    assert sizes(proven(model, x)) == {"0": (8, 1)}


def test_batch_size_scales_flops():
    model = TwoInputs()
    assert cafenet.trace(model, TWO_IMAGES).flops() == 2 * cafenet.trace(model, IMAGE).flops()


def test_frozen_parameters_stay_frozen():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 5, 1))
    model[0].weight.requires_grad_(False)
    slim = proven(model, IMAGE).extract({"0": 3})
    assert [parameter.requires_grad for parameter in slim.parameters()] == [False, True, True, True]


@dataclass
class Scores:
    logits: torch.Tensor
    name: str = "scores"


class Slotted:
    __slots__ = ("logits",)

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class Named(dict):
    """A dict subclass is no dict to torch's pytree."""


@pytest.mark.parametrize(
    "wrap",
    [
        lambda out: {"logits": out},
        lambda out: [out, out.argmax(1)],
        lambda out: Scores(out),
        lambda out: Slotted(out),
        lambda out: Named(logits=out),
        lambda out: {"nested": [Scores(out)]},
        lambda out: torch.distributions.Categorical(logits=out, validate_args=False),
    ],
    ids=["dict", "list", "dataclass", "slots", "dict subclass", "nested", "distribution"],
)
def test_outputs_keep_their_size_wherever_they_are(wrap):
    model = Forward(lambda net, x: wrap(net.head(pooled(net.conv(x)))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1)}
    assert reasons(space)["head"].startswith("is an output of the model")


def test_intermediate_outputs_keep_their_size():
    model = Forward(
        lambda net, x: {"features": net.a(x), "scores": net.head(pooled(net.b(net.a(x))))},
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(8, 6, 1),
        head=nn.Linear(6, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"b": (6, 1)}
    assert reasons(space)["a"].startswith("is an output of the model (features); pass outputs=")


def test_loss_as_the_output():
    """The classes meet targets in the loss, which no rule follows: they stay."""
    model = Forward(
        lambda net, x, y: nn.functional.cross_entropy(net.head(pooled(net.conv(x))), y),
        conv=nn.Conv2d(3, 8, 1),
        head=nn.Linear(8, 5),
    )
    space = proven(model, (TWO_IMAGES, torch.tensor([1, 3])))
    assert sizes(space) == {"conv": (8, 1)}
    assert "nll_loss" in reasons(space)["head"]


def test_containers_that_cannot_be_written_and_large_ones_are_left_alone():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1))
    model.options = immutable_dict({"a": 1})
    model.vocabulary = dict.fromkeys(range(5000), 0)
    assert cafenet.trace(model, torch.zeros(1, 3, 4, 4)).full_widths == {"0": 8}
