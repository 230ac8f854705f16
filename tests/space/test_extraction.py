"""Running and extracting subnets: both use the same channels of the same weights."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import WidthError
from tests.helpers.networks import TWO_IMAGES, Forward, pooled


class Net(nn.Module):
    """A little of everything: batch norm, depthwise, group norm, squeeze-and-excitation, flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(4, 8)
        self.squeeze, self.excite = nn.Linear(8, 3), nn.Linear(3, 8)
        self.inner = nn.Conv2d(8, 6, 1)
        self.hidden = nn.Linear(6 * 16, 10)
        self.last = nn.LayerNorm(10)
        self.head = nn.Linear(10, 5)

    def forward(self, x):
        x = self.norm(self.depthwise(self.stem(x)))
        x = x * self.excite(self.squeeze(pooled(x)).relu()).sigmoid()[:, :, None, None]
        x = nn.functional.max_pool2d(self.inner(x), 2)
        return self.head(self.last(self.hidden(x.flatten(1))).relu())


WIDTHS = {"stem.0": 6, "squeeze": 2, "inner": 4, "hidden": 7}


@pytest.fixture
def model() -> Net:
    model = Net().eval()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return model


@pytest.fixture
def space(model: Net) -> cafenet.WidthSpace:
    return cafenet.trace(model, TWO_IMAGES)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(2, 3, 8, 8)


def test_slim_model_is_plain(space: cafenet.WidthSpace):
    slim = space.extract(WIDTHS)
    assert type(slim) is Net
    assert [type(module) for module in slim.modules()] == [type(module) for module in space.model.modules()]
    assert list(slim.state_dict()) == list(space.model.state_dict())
    assert sum(p.numel() for p in slim.parameters()) == space.params(WIDTHS)
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in slim.parameters())
    assert not slim.training


def test_attributes(space: cafenet.WidthSpace):
    slim = space.extract(WIDTHS)
    stem, depthwise, inner = slim.stem[0], slim.depthwise, slim.inner
    assert (stem.in_channels, stem.out_channels, slim.stem[1].num_features) == (3, 6, 6)
    assert (depthwise.in_channels, depthwise.out_channels, depthwise.groups) == (6, 6, 6)
    assert (slim.norm.num_groups, slim.norm.num_channels) == (3, 6)
    assert (slim.squeeze.in_features, slim.squeeze.out_features) == (6, 2)
    assert (slim.excite.in_features, slim.excite.out_features) == (2, 6)
    assert (inner.in_channels, inner.out_channels) == (6, 4)
    assert (slim.hidden.in_features, slim.hidden.out_features, slim.last.normalized_shape) == (64, 7, (7,))
    assert (slim.head.in_features, slim.head.out_features) == (7, 5)
    for module in slim.modules():  # what a module prints is what its tensors are
        if isinstance(module, nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)


def test_leading_channels(space: cafenet.WidthSpace, model: Net):
    slim = space.extract(WIDTHS)
    assert slim.stem[0].weight.equal(model.stem[0].weight[:6])
    assert slim.stem[1].running_var.equal(model.stem[1].running_var[:6])
    assert slim.inner.weight.equal(model.inner.weight[:4, :6])
    assert slim.hidden.weight.equal(model.hidden.weight[:7, :64])
    leading = {"stem.0": range(6), "squeeze": [0, 1], "inner": np.arange(4), "hidden": torch.arange(7)}
    for name, tensor in space.extract(channels=leading).state_dict().items():
        assert tensor.equal(slim.state_dict()[name])


def test_explicit_channels(space: cafenet.WidthSpace, model: Net):
    channels = {"stem.0": [2, 3, 6, 7], "inner": [5, 0], "hidden": [9]}
    slim = space.extract(channels=channels)
    assert slim.stem[0].weight.equal(model.stem[0].weight[[2, 3, 6, 7]])
    assert slim.inner.weight.equal(model.inner.weight[[0, 5]][:, [2, 3, 6, 7]])  # order is that of the model
    assert slim.hidden.weight.equal(model.hidden.weight[[9]][:, [*range(16), *range(80, 96)]])
    assert slim.squeeze.out_features == 3  # a group that is not mentioned is whole


@pytest.mark.parametrize(
    "choice",
    [
        {"widths": WIDTHS},
        {"widths": None},
        {"widths": {"stem.0": 2, "squeeze": 1, "inner": 1, "hidden": 1}},
        {"channels": {"stem.0": [0, 1, 4, 5], "squeeze": [2], "inner": [1, 3, 5], "hidden": [0, 4, 8]}},
    ],
    ids=["widths", "full", "smallest", "channels"],
)
@pytest.mark.parametrize("training", [True, False])
def test_run_in_place_equals_the_slim_model(space: cafenet.WidthSpace, x: torch.Tensor, choice: dict, training: bool):
    space.model.train(training)
    slim = space.extract(**choice)
    assert slim.training is training
    assert space.run(x, **choice).equal(slim(x))


def test_full_width_is_the_model_itself(space: cafenet.WidthSpace, model: Net, x: torch.Tensor):
    assert space.run(x).equal(model(x))
    assert space.extract()(x).equal(model(x))


def test_slim_model_owns_its_memory(space: cafenet.WidthSpace, model: Net):
    before = copy.deepcopy(model.state_dict())
    for widths in (None, WIDTHS):
        with torch.no_grad():
            for tensor in space.extract(widths).state_dict().values():
                tensor.zero_()
    for name, tensor in model.state_dict().items():
        assert tensor.equal(before[name])


def test_gradients_reach_the_chosen_channels_only():
    """Exactly zero everywhere else, and inside what training the slim model would see."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1), nn.Tanh(), nn.Flatten(), nn.Linear(24, 5)
    )
    x = torch.rand(3, 3, 2, 2)
    space = cafenet.trace(model, x)
    slim = space.extract(channels={"0": [2, 5], "2": [0, 4, 5]})
    space.run(x, channels={"0": [2, 5], "2": [0, 4, 5]}).square().sum().backward()
    slim(x).square().sum().backward()
    first, second, flat = [2, 5], [0, 4, 5], [0, 1, 2, 3, *range(16, 24)]  # four places a channel
    chosen = {
        "0.weight": (first,),
        "0.bias": (first,),
        "1.weight": (first,),
        "1.bias": (first,),
        "2.weight": (second, first),
        "2.bias": (second,),
        "5.weight": (range(5), flat),
        "5.bias": (range(5),),
    }
    assert set(chosen) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        expected = torch.zeros_like(parameter)
        expected[np.ix_(*chosen[name])] = slim.get_parameter(name).grad
        if name != "0.bias":  # batch norm takes the mean away, and with it this gradient
            assert expected.abs().max() > 1e-3
        assert ((parameter.grad == 0) | (expected != 0)).all()
        torch.testing.assert_close(parameter.grad, expected)


def test_slim_model_trains(space: cafenet.WidthSpace):
    slim = space.extract(WIDTHS).train()
    optimizer = torch.optim.SGD(slim.parameters(), lr=0.05)
    x, y = torch.rand(16, 3, 8, 8), torch.arange(16) % 5
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(slim(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_run_leaves_batch_norm_alone(space: cafenet.WidthSpace, model: Net, x: torch.Tensor):
    before = copy.deepcopy(model.state_dict())
    model.train()
    space.run(x, WIDTHS)
    for name, tensor in model.state_dict().items():
        assert tensor.equal(before[name])


def test_attributes_come_back_after_an_error(space: cafenet.WidthSpace, model: Net):
    with pytest.raises(WidthError, match="the model must run on the inputs"):
        space.run(torch.rand(2, 4, 8, 8), WIDTHS)
    assert (model.depthwise.groups, model.norm.num_groups, model.last.normalized_shape) == (8, 4, (10,))


def test_weights_of_another_model(space: cafenet.WidthSpace, x: torch.Tensor):
    other = Net().eval()
    assert space.run(x, WIDTHS, model=other).equal(space.extract(WIDTHS, model=other)(x))
    assert not space.run(x, WIDTHS, model=other).equal(space.run(x, WIDTHS))


def test_another_architecture_is_refused(space: cafenet.WidthSpace, x: torch.Tensor):
    slim = space.extract(WIDTHS)
    for call in (lambda m: space.run(x, WIDTHS, model=m), lambda m: space.extract(WIDTHS, model=m)):
        with pytest.raises(WidthError, match=r"stem.0.weight is \[6, 3, 3, 3\] instead of \[8, 3, 3, 3\]"):
            call(slim)
        with pytest.raises(WidthError, match="is missing instead of"):
            call(nn.Linear(2, 2))


def test_slim_model_can_be_traced_again(space: cafenet.WidthSpace, x: torch.Tensor):
    """Multi-stage search starts from the widths found before."""
    slim = space.extract(WIDTHS)
    again = cafenet.trace(slim, TWO_IMAGES)
    assert again.full_widths == WIDTHS
    assert again.flops() == space.flops(WIDTHS)
    assert cafenet.verify(again, TWO_IMAGES).ok
    smaller = {"stem.0": 4, "squeeze": 1, "inner": 2, "hidden": 3}
    assert again.extract(smaller)(x).equal(space.extract(smaller)(x))


def test_other_attributes_are_carried_over():
    model = Forward(lambda net, x: net.head(pooled(net.conv(x))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    model.labels, model.table = ["cat", "dog"], torch.arange(4)
    slim = cafenet.trace(model, TWO_IMAGES).extract({"conv": 3})
    assert slim.labels == model.labels
    assert slim.labels is not model.labels
    assert slim.table.equal(model.table)
