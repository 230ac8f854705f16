"""A supernet that begins with the full network: it is trained first, then its best channels go in front."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from cafenet.common.run_places import FULL_NETWORK
from cafenet.space.bins import uniform_bins
from cafenet.space.importance import restore_constants, unit_importance
from cafenet.supernet import train
from cafenet.supernet.plain_training import train_model
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.optimizers import ScheduleConfig
from tests.helpers.small_training import Plain, assert_same_state, built, config, data, log_of, sampling, supernet_of

OPTIONS = {"epochs": 4, "lr": 0.1}
SAMPLING = sampling(full_share=0.25)
STEPS = 32
"""4 epochs of 64 examples in steps of 8; the first 8 of them train the full network."""


def trained_from_full(directory=None, max_steps=None, widths=SAMPLING, **options):
    supernet = supernet_of()
    settings = config(**{**OPTIONS, **options})
    result = train_supernet(
        supernet, data(), settings, sampling=widths, directory=directory, max_steps=max_steps, quiet=True
    )
    return supernet, result


def test_the_full_network_takes_the_first_epochs(monkeypatch):
    sizes, pick = [], Supernet.pick

    def watched(self, *args, **options):
        sizes.append(self.binned.bins.search_space_size)
        return pick(self, *args, **options)

    monkeypatch.setattr(Supernet, "pick", watched)
    _, result = trained_from_full()
    assert sizes == [1] * 8 + [16] * 24
    assert (result.steps, result.finished) == (STEPS, True)


def test_it_is_what_train_model_makes_with_its_channels_sorted():
    alone = train_model(built(), torch.zeros(1, 3, 4, 4), data(), config(epochs=1, lr=0.1), quiet=True)
    supernet, result = trained_from_full(max_steps=8)
    assert (result.steps, result.finished) == (8, False)
    images, _ = data(16, 5).tensors
    torch.testing.assert_close(supernet.model.eval()(images), alone.eval()(images))
    for importance in unit_importance(supernet.space, supernet.model):
        assert (np.diff(importance) <= 0).all()
    assert any((np.diff(importance) > 0).any() for importance in unit_importance(supernet.space, alone))


@pytest.mark.parametrize("stops", [(3,), (8,), (9,), (3, 8, 20), (31,)])
def test_an_interrupted_training_ends_as_one_that_was_not(stops, tmp_path):
    whole, _ = trained_from_full()
    for stop in stops:
        _, result = trained_from_full(tmp_path, max_steps=stop)
        assert (result.steps, result.finished) == (stop, False)
    continued, result = trained_from_full(tmp_path)
    assert (result.steps, result.finished) == (STEPS, True)
    assert_same_state(continued.model, whole.model)
    assert (tmp_path / FULL_NETWORK / "model.pt").exists()


def test_a_checkpoint_says_which_order_its_channels_are_in(tmp_path, monkeypatch):
    """Another version may sort otherwise, but the weights that it continues from are in the order of their own."""
    first, _ = trained_from_full(tmp_path, max_steps=20)
    monkeypatch.setattr(train, "importance_order", lambda space, model: np.arange(space.layout.num_units))
    continued, _ = trained_from_full(tmp_path)
    np.testing.assert_array_equal(continued.order, first.order)
    assert (np.diff(first.order) < 0).any()


def test_both_parts_follow_the_schedule(tmp_path):
    """Half-way through 4 steps of the full network the rate falls, and again half-way through 12 of the supernet."""
    halved = ScheduleConfig("step", milestones=(1,), gamma=0.5)  # the first of two epochs
    trained_from_full(tmp_path, epochs=2, schedule=halved)
    rates = [[line["lr"] for line in log_of(place)] for place in (tmp_path / FULL_NETWORK, tmp_path)]
    assert rates == [[0.1] * 2 + [0.05] * 2, [0.1] * 6 + [0.05] * 6]


def test_without_a_share_there_is_no_full_network(tmp_path):
    trained_from_full(tmp_path / "without", widths=sampling(full_share=0.0))
    assert not (tmp_path / "without" / FULL_NETWORK).exists()


def test_the_default_share_is_that_of_a_search():
    (one, _), (other, _) = (trained_from_full(widths=widths) for widths in (None, sampling(full_share=0.3)))
    assert_same_state(one.model, other.model)


def test_a_supernet_of_one_width_is_the_full_network_already(tmp_path):
    model = built()
    space = supernet_of(model).space
    only = Supernet(model, space, uniform_bins(space, 1), LocallyFree(0))
    result = train_supernet(only, data(), config(**OPTIONS), sampling=SAMPLING, directory=tmp_path, quiet=True)
    assert result.steps == STEPS
    assert not (tmp_path / FULL_NETWORK).exists()


def test_the_model_that_was_given_is_left_as_it_is():
    model = built()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train_supernet(supernet_of(model), data(), config(**OPTIONS), sampling=SAMPLING, quiet=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Scaled(Plain):
    """Channels have constants of their own, which a state dict does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.1, 3.0, 12)[:, None, None], persistent=False)

    def forward(self, x):
        x = functional.relu(self.norm_one(self.one(x)))
        return self.head((self.scale * functional.relu(self.norm_two(self.two(x)))).mean((2, 3)))


def scaled_supernet():
    return supernet_of(built(Scaled))


def test_constants_go_where_their_channels_go(tmp_path):
    """Those that a state dict leaves out, too; also in a supernet that is read again."""
    images, _ = data(16, 5).tensors
    alone = train_model(built(Scaled), torch.zeros(1, 3, 4, 4), data(), config(epochs=1, lr=0.1), quiet=True)
    settings = config(**OPTIONS)
    supernet = scaled_supernet()
    train_supernet(supernet, data(), settings, sampling=SAMPLING, directory=tmp_path, max_steps=8, quiet=True)
    torch.testing.assert_close(supernet.model.eval()(images), alone.eval()(images))
    assert not torch.equal(supernet.model.scale, alone.scale)
    train_supernet(supernet.train(), data(), settings, sampling=SAMPLING, directory=tmp_path, quiet=True)
    saved = torch.load(tmp_path / "supernet.pt", weights_only=True)
    read = built(Scaled)
    read.load_state_dict(saved["model"])
    restore_constants(read, saved)
    torch.testing.assert_close(read.eval()(images), supernet.model.eval()(images))
    continued = scaled_supernet()
    train_supernet(continued, data(), settings, sampling=SAMPLING, directory=tmp_path, quiet=True)
    torch.testing.assert_close(continued.model.eval()(images), supernet.model.eval()(images))
