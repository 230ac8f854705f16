"""Input that cannot be trained on: one clear error before or at the first step, and the checkpoint is kept."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import cafenet
from cafenet import CafeNetError
from cafenet.errors import BinError, TrainingError
from cafenet.space.bins import uniform_bins
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig
from tests.helpers.small_training import Plain, batch, built, config, data, supernet_of, traced, trained


def with_labels(labels: torch.Tensor) -> TensorDataset:
    return TensorDataset(batch(len(labels))[0], labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.full((64,), 4), "labels must lie in 0 to 3, the model's number of outputs, but lie in 4 to 4"),
        (torch.full((64,), -1), "but lie in -1 to -1"),
        (torch.zeros(64), "targets must be int64 class numbers"),
        (torch.zeros(64, 4, dtype=torch.int64), "targets must be int64 class numbers"),
    ],
)
def test_labels_that_do_not_fit(labels, message):
    supernet = supernet_of()
    with pytest.raises(TrainingError, match=message):
        trained(supernet, data=with_labels(labels))
    assert torch.equal(supernet.model.one.weight, built().one.weight)


def test_a_label_that_does_not_fit_and_comes_late(tmp_path):
    labels = batch(64)[1].clone()
    labels[41] = 7
    with pytest.raises(TrainingError, match="but lie in 0 to 7"):
        trained(supernet_of(), tmp_path, data=with_labels(labels), checkpoint_every=1, seed=2)
    # seed 2 reads example 41 in step 7; the six before are kept
    assert torch.load(tmp_path / "supernet.pt", weights_only=True)["step"] == 6


@pytest.mark.parametrize("make", [lambda: TensorDataset(torch.zeros(0)), lambda: DataLoader([], batch_size=4), list])
def test_empty_data(make):
    with pytest.raises(TrainingError, match="must hold at least one example, but is empty"):
        trained(supernet_of(), data=make())


def test_less_data_than_a_step():
    with pytest.raises(TrainingError, match="must fill one step of 1 x 65 examples, but has 64; lower the batch size"):
        trained(supernet_of(), batch_size=65)


def test_a_dict_that_the_forward_does_not_take():
    with pytest.raises(TrainingError, match="it does not take 'image', 'labels'; rename the entries"):
        trained(supernet_of(), data=[{"image": torch.zeros(3, 4, 4), "labels": 1}] * 16)


@pytest.mark.parametrize("example", [(torch.zeros(3, 4, 4),), torch.zeros(3, 4, 4)])
def test_batches_that_are_no_pairs(example):
    with pytest.raises(TrainingError, match=r"must be a pair \(inputs, target\) or a dict, but got"):
        trained(supernet_of(), data=[example] * 16)


def test_a_loss_that_is_not_a_number(tmp_path):
    inputs, labels = batch(64)
    inputs[41] = math.inf
    supernet = supernet_of()
    with pytest.raises(
        TrainingError, match=r"loss must stay finite, but is nan at step 7 \(learning rate 0.05\); .* kept in"
    ):
        trained(supernet, tmp_path, data=TensorDataset(inputs, labels), checkpoint_every=1, seed=2)
    kept = torch.load(tmp_path / "supernet.pt", weights_only=True)
    assert kept["step"] == 6
    assert all(bool(tensor.isfinite().all()) for tensor in kept["model"].values())
    for name, parameter in supernet.model.named_parameters():
        assert torch.equal(parameter, kept["model"][name])  # the step did no harm
    # with data that is right, the run goes on from there
    trained(supernet, tmp_path, checkpoint_every=1, seed=2)
    assert all(bool(tensor.isfinite().all()) for tensor in supernet.state_dict().values())


def test_a_learning_rate_that_is_too_high(tmp_path):
    with pytest.raises(TrainingError, match=r"at step \d \(learning rate 1e\+30\); lower the learning rate"):
        trained(supernet_of(), tmp_path, lr=1e30)
    assert not (tmp_path / "supernet.pt").exists()


def test_a_loss_function_that_returns_nan():
    with pytest.raises(TrainingError, match="is nan at step 1"):
        trained(supernet_of(), loss=lambda output, target: functional.cross_entropy(output, target) * math.nan)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    def finite_without_a_gradient(output, target):
        spread = (output.detach() - output).pow(2).sum()  # 0, where the square root has no slope
        return functional.cross_entropy(output, target) + spread.sqrt()

    trained(supernet_of(), tmp_path, max_steps=2, loss=functional.cross_entropy)
    before = (tmp_path / "supernet.pt").read_bytes()
    finite_without_a_gradient.__name__ = "cross_entropy"
    with pytest.raises(TrainingError, match=r"weights must stay finite, but are not after step 3; .* kept in"):
        trained(supernet_of(), tmp_path, max_steps=3, loss=finite_without_a_gradient)
    assert (tmp_path / "supernet.pt").read_bytes() == before
    with pytest.raises(TrainingError, match="weights must stay finite"):
        trained(supernet_of(), max_steps=1, loss=finite_without_a_gradient)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda output, target: functional.cross_entropy(output, target, reduction="none"), r"\[8\]"),
        (lambda output, target: 0.5, "float"),
    ],
)
def test_a_loss_function_that_returns_no_single_number(loss, what):
    with pytest.raises(TrainingError, match=f"a loss must be one number, the mean over the batch, but is {what}"):
        trained(supernet_of(), loss=loss)


class PooledNorm(nn.Module):
    """Batch norm after pooling has one value a channel and example."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.norm(self.one(x).mean((2, 3))))


def test_a_batch_of_one_with_batch_norm():
    model = PooledNorm()
    space = cafenet.trace(model, torch.zeros(2, 3, 4, 4))
    supernet = Supernet(model, space, uniform_bins(space, 4))
    with pytest.raises(TrainingError, match="more than one value per channel, but a batch of 1 gives one; raise the"):
        trained(supernet, batch_size=1)
    trained(supernet, batch_size=2)
    trained(supernet_of(), batch_size=1, max_steps=2)  # 16 places are enough


class Checkpointed(nn.Module):
    """The inside of a block is computed again in the backward pass; its ends have a fixed width."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 8, 3, padding=1)
        self.outer = nn.Conv2d(8, 3, 3, padding=1)
        self.head = nn.Linear(3, 4)
        self.reentrant = reentrant

    def block(self, x):
        return self.outer(self.inner(x).relu())

    def forward(self, x):
        x = x.clone().requires_grad_() if torch.is_grad_enabled() else x
        return self.head((x + checkpoint(self.block, x, use_reentrant=self.reentrant)).mean((2, 3)))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("seed", range(3))
def test_reentrant_gradient_checkpointing_is_refused_whatever_width_comes_first(seed):
    supernet = supernet_of(Checkpointed(True), LocallyFree(0), seed=seed)
    with pytest.raises(TrainingError, match=r"gradient checkpointing cannot be a supernet: .* use_reentrant=False"):
        trained(supernet)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpointing_in_the_users_own_loop():
    """Its gradients would be silently wrong."""
    supernet = supernet_of(Checkpointed(True), LocallyFree(0))
    with pytest.raises(TrainingError, match="gradient checkpointing"):
        supernet.step(batch(), functional.cross_entropy)
    assert not nn.modules.module._global_forward_pre_hooks


def test_all_mistakes_of_a_config_in_one_message():
    with pytest.raises(TrainingError) as error:
        TrainConfig(
            epochs=0,
            batch_size=-1,
            amp="fp8",
            clip_norm=0.0,
            seed=-1,
            label_smoothing=1.0,
            num_workers=-1,
        )
    for problem in (
        "epochs must be a number above 0, but is 0",
        "batch_size must be a whole number of at least 1, but is -1",
        "amp must be 'bf16', 'fp16' or None, but is 'fp8'",
        "clip_norm must be a number above 0 or None, but is 0.0",
        "seed must be a whole number from 0 to 9223372036854775807, but is -1",
        "label_smoothing must be a number from 0 to below 1, but is 1.0",
        "num_workers must be a whole number from 0 to 4096, but is -1",
    ):
        assert problem in str(error.value)


def test_all_mistakes_of_sampling_in_one_message():
    with pytest.raises(TrainingError) as error:
        SamplingConfig(random_share=1.5, sandwich=-1, flops_band=(0.6, 0.4), full_share=1.0, spread=-0.3)
    for problem in (
        "random_share must be a number from 0 to 1, but is 1.5",
        "sandwich must be a whole number of at least 0, but is -1",
        "full_share must be a number from 0 to below 1, but is 1.0",
        "in rising order, 'budgets' or None, but is (0.6, 0.4)",
        "spread must be a number above 0, but is -0.3",
    ):
        assert problem in str(error.value)


@pytest.mark.parametrize("band", ["budget", 0.5, (0.5,)])
def test_a_band_that_is_none(band):
    with pytest.raises(TrainingError, match=rf"flops_band must be .*, but is {re.escape(repr(band))}"):
        trained(supernet_of(), flops_band=band)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharing": "fixed"}, "sharing must be 'locally_free' or 'bilateral', but is 'fixed'"),
        ({"bins": "unifrm"}, "bins must be 'budget', .* or 'uniform', but is 'unifrm'; did you mean uniform\\?"),
        ({"choice": "exct"}, "choice must be 'race' or 'exact', but is 'exct'; did you mean exact\\?"),
        ({"per_group": True}, "per_group draws among a group's assignments, but with r = 0 there is one; raise r"),
    ],
)
def test_options_that_a_supernet_does_not_know_or_that_do_nothing(options, message):
    with pytest.raises(BinError, match=message):
        SupernetConfig(**options)


def test_fp16_needs_a_gpu():
    with pytest.raises(TrainingError, match="amp 'fp16' needs a GPU, but the model is on the CPU; use 'bf16' there"):
        trained(supernet_of(), amp="fp16")


def test_unknown_losses():
    with pytest.raises(TrainingError, match="but got 'focal'"):
        trained(supernet_of(), loss="focal")


def test_every_such_error_is_a_cafenet_error():
    model = built(Plain)
    space = traced(model)
    with pytest.raises(CafeNetError, match="r=9"):
        Supernet(model, space, uniform_bins(space, 4), LocallyFree(9))
    with pytest.raises(CafeNetError):
        train_supernet(supernet_of(), data(), config(batch_size=0), quiet=True)
