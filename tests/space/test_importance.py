"""A pretrained start: sorting channels by importance changes their order and nothing else."""

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.space.importance import channels_before, importance_order, sort_by_importance, unit_importance
from tests.helpers.hugging_face import build
from tests.helpers.small_training import Gated, Plain, Residual, batch, built, traced


def test_the_strongest_filter_comes_first():
    model = nn.Sequential(nn.Conv2d(1, 3, 1, bias=False), nn.ReLU(), nn.Conv2d(3, 2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 2.0, 6.0]).view(3, 1, 1, 1))
        model[2].weight.copy_(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]).view(2, 3, 1, 1))
    space = cafenet.trace(model, torch.randn(1, 1, 4, 4))
    # Mean square relative to the slot's mean of 41/3 on the way in, 1 each on the way out.
    (importance,) = unit_importance(space)
    np.testing.assert_allclose(importance, [1 + 3 / 41, 1 + 12 / 41, 1 + 108 / 41])
    ordered = sort_by_importance(space)
    assert ordered[0].weight.flatten().tolist() == [6.0, 2.0, 1.0]
    assert model[0].weight.flatten().tolist() == [1.0, 2.0, 6.0]


def importance_between(norm, *, transposed=False, depthwise=False):
    """Of three channels that weigh 1, 2 and 6 where they are made, and 1 + 4, 9 + 1 and 0 where they are read."""
    reader = nn.ConvTranspose2d(3, 2, 1, bias=False) if transposed else nn.Conv2d(3, 2, 1, bias=False)
    between = [nn.Conv2d(3, 3, 1, groups=3, bias=False)] if depthwise else []
    model = nn.Sequential(nn.Conv2d(1, 3, 1, bias=False), *between, norm, nn.ReLU(), reader)
    read = torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]])
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 2.0, 6.0]).view(3, 1, 1, 1))
        reader.weight.copy_((read.T if transposed else read).reshape(reader.weight.shape))
    (importance,) = unit_importance(cafenet.trace(model, torch.randn(1, 1, 4, 4)))
    return importance


@pytest.mark.parametrize("options", [{}, {"transposed": True}, {"depthwise": True}])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), nn.SyncBatchNorm(3)])
def test_where_channels_are_normalised_those_who_read_them_decide(norm, options):
    np.testing.assert_allclose(importance_between(norm, **options), [1, 2, 0])  # of 5 on average


def test_where_nothing_is_normalised_all_weights_count():
    np.testing.assert_allclose(importance_between(nn.Identity()), [1 + 3 / 41, 2 + 12 / 41, 108 / 41])


def test_layer_norm_keeps_how_large_channels_are_beside_each_other():
    model = nn.Sequential(nn.Linear(1, 3, bias=False), nn.LayerNorm(3), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0], [1.0], [2.0]]))
        model[2].weight.fill_(1.0)
    (importance,) = unit_importance(cafenet.trace(model, torch.randn(2, 1)))
    assert importance.argmin() == 0


def test_a_channel_that_its_normalisation_silences_comes_last():
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.3, 0.001, 2.0]))
    np.testing.assert_allclose(importance_between(norm), [1, 0, 0])


@pytest.mark.parametrize("name", ["mobilenet_v2", "shufflenet_v2_x0_5", "densenet121", "regnet_y_400mf"])
def test_the_function_stays_and_the_order_falls(name: str):
    model = cafenet.load_model(f"torchvision:{name}").double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5 + torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(1, 3, 64, 64, generator=generator, dtype=torch.float64)
    space = cafenet.trace(model, x)
    ordered = sort_by_importance(space)
    with torch.no_grad():
        torch.testing.assert_close(ordered(x), model(x), rtol=1e-9, atol=1e-9)
    assert any((np.diff(importance) > 0).any() for importance in unit_importance(space))
    for importance in unit_importance(space, ordered):
        assert (np.diff(importance) <= 1e-9).all()


def test_leading_channels_are_worth_more_after_sorting():
    """A network that only its last channels carry: half of it is worthless before sorting and whole after it."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    with torch.no_grad():
        for parameter in (model[0].weight, model[0].bias):
            parameter[:4] = 0
        model[2].weight[:, :4] = 0
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    space = cafenet.trace(model, x[:1])
    ordered = sort_by_importance(space)
    with torch.no_grad():
        assert not torch.allclose(space.extract([4])(x), model(x))
        torch.testing.assert_close(space.extract([4], model=ordered)(x), model(x))


@pytest.mark.parametrize("kind", [Plain, Residual, Gated])
def test_channels_of_the_sorted_model_are_found_in_the_one_before(kind):
    model = built(kind, seed=3).eval()
    space = traced(model)
    channels = {group.name: list(range(group.channels))[: group.channels // 2] for group in space.groups}
    if kind is Gated:  # kept in pairs, one of each half
        channels["inner"] = [0, 1, 2, 6, 7, 8]
    before = channels_before(space, channels, importance_order(space, model))
    assert before != channels
    one, other = space.extract(channels=before), space.extract(channels=channels, model=sort_by_importance(space))
    images, _ = batch()
    torch.testing.assert_close(one.eval()(images), other.eval()(images))


@pytest.mark.parametrize(("name", "layer"), [("bert", "intermediate.dense"), ("llama", "mlp.up_proj")])
def test_units_are_sorted_without_batch_norm(name: str, layer: str):
    """The unit of an MLP between layer norms whose weights are largest comes first; the outputs stay."""
    model, inputs = build(name)
    path, weight = next((p, m.weight) for p, m in model.named_modules() if p.endswith(layer))
    with torch.no_grad():
        weight[5] *= 20
        strongest = weight[5].square().sum()
        sorted_model = sort_by_importance(cafenet.trace(model, inputs))
        moved = sorted_model.get_submodule(path).weight
        assert int(moved.square().sum(dim=1).argmax()) == 0
        assert torch.isclose(moved[0].square().sum(), strongest)
        assert torch.allclose(sorted_model(**inputs).logits, model(**inputs).logits, atol=1e-5)


def test_the_strongest_head_goes_to_the_front():
    """A head moves as one, with its rows of queries, keys and values and its columns of the projection."""
    model = nn.Sequential(nn.Linear(6, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3))
    freed = cafenet.free_heads(model).eval()
    tokens = torch.randn(1, 5, 6)
    space = cafenet.trace(freed, tokens)
    projection = freed.get_submodule("1.self_attn.out_proj")
    with torch.no_grad():
        strongest = projection.weight[:, 4:].mul_(10).clone()
    ordered = sort_by_importance(space)
    front = {name: unit.argmax() for name, unit in zip(space.min_widths, unit_importance(space), strict=True)}
    assert front["1.self_attn.in_proj_weight"] == 1
    found = ordered.get_submodule("1.self_attn.out_proj").weight[:, :4]
    assert found.sort(0).values.allclose(strongest.sort(0).values)  # the stream is sorted, too
    torch.testing.assert_close(ordered(tokens), freed(tokens), atol=1e-5, rtol=1e-4)
