"""Every option of the loop does what its sentence says."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional

from cafenet.supernet.candidate_choice import Race
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig
from cafenet.training.loop import TrainResult
from cafenet.training.optimizers import OptimizerConfig
from tests.helpers.small_training import (
    Plain,
    Residual,
    WithoutNorm,
    assert_same_state,
    batch,
    built,
    data,
    log_of,
    sampling,
    supernet_of,
    trained,
)

PLAIN_SGD = OptimizerConfig(lr=0.1, weight_decay=0.0, options={"momentum": 0.0})


def spied(supernet: Supernet, monkeypatch) -> list[dict]:
    """Notes the options and the result of every pick."""
    picks, pick = [], supernet.pick

    def noting(batches, loss_fn, **options):
        found = pick(batches, loss_fn, **options)
        picks.append({**options, "pick": found, "num_batches": len(batches)})
        return found

    monkeypatch.setattr(supernet, "pick", noting)
    return picks


@pytest.mark.parametrize("kind", [Plain, Residual])
@pytest.mark.parametrize("sharing", [LocallyFree(0), LocallyFree(1), LocallyFree(1, per_group=True), Bilateral()])
def test_the_loss_falls(kind, sharing, tmp_path):
    trained(supernet_of(built(kind), sharing), tmp_path, data=data(256), epochs=2)
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert len(losses) == 64
    assert np.mean(losses[:5]) > 1.1  # log(4) is 1.39
    assert np.mean(losses[-15:]) < 0.65 * np.mean(losses[:5])


def test_the_loss_falls_with_a_race(tmp_path):
    trained(supernet_of(choice=Race(chunk=0.125, min_examples=2)), tmp_path, data=data(512), epochs=2, batch_size=16)
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert np.mean(losses[-15:]) < 0.65 * np.mean(losses[:5])


def test_result_and_log(tmp_path):
    run = {"epochs": 2.5, "log_every": 7}
    config = TrainConfig(batch_size=8, optimizer=PLAIN_SGD, **run)
    result = train_supernet(supernet_of(), data(64), config, sampling=sampling(), directory=tmp_path, quiet=True)
    # 8 steps an epoch, 2.5 epochs
    lines = log_of(tmp_path)
    assert [line["step"] for line in lines] == [1, 7, 14, 20]
    assert result == TrainResult(20, lines[-1]["loss"], finished=True)
    assert [line["epoch"] for line in lines] == [1 / 8, 7 / 8, 14 / 8, 2.5]
    for line in lines:
        assert line.keys() == {
            "step", "epoch", "loss", "lr", "examples_per_second", "candidate", "num_candidates", "chosen"
        }  # fmt: skip
        assert 0 <= line["candidate"] < line["num_candidates"] <= 3
        assert line["examples_per_second"] > 0
    totals = [sum(line["chosen"].values()) for line in lines]
    assert [low <= high for low, high in pairwise(totals)] == [True] * 3
    assert 0 < totals[-1] <= 20


def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(supernet_of())
    assert list(tmp_path.iterdir()) == []


def test_progress_off_a_terminal_is_a_plain_line_at_the_end(capsys):
    train_supernet(supernet_of(), data(), TrainConfig(epochs=1, batch_size=8), sampling=sampling())
    assert "supernet: step 8/8, loss " in capsys.readouterr().err
    train_supernet(supernet_of(), data(), TrainConfig(epochs=1, batch_size=8), quiet=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(("share", "num_random"), [(0.0, 0), (0.3, 3), (0.25, 3), (1.0, 10)])
def test_lambda_is_the_share_of_the_first_steps_with_a_random_candidate(share, num_random, monkeypatch):
    supernet = supernet_of()
    picks = spied(supernet, monkeypatch)
    trained(supernet, data=data(80), random_share=share)
    assert [pick["random_candidate"] for pick in picks] == [True] * num_random + [False] * (10 - num_random)
    for pick in picks:
        compared = not pick["random_candidate"] and pick["pick"].num_candidates > 1
        assert bool(pick["pick"].trial_losses) == compared


def test_the_sandwich_is_the_widest_the_smallest_and_some_between(monkeypatch):
    supernet = supernet_of(seed=3)
    picks = spied(supernet, monkeypatch)
    trained(supernet, max_steps=2, sandwich=2)
    bin_counts = [pick["pick"].bin_counts.tolist() for pick in picks]
    assert [bin_counts[0], bin_counts[1], bin_counts[4], bin_counts[5]] == [[4, 4], [1, 1], [4, 4], [1, 1]]
    twin = supernet_of(seed=3)
    assert [bin_counts[2], bin_counts[3], bin_counts[6], bin_counts[7]] == [twin.sample().tolist() for _ in range(4)]


def test_a_sandwich_step_adds_the_gradients_of_its_widths():
    supernet = trained(supernet_of(built(WithoutNorm)), max_steps=1, sandwich=1, optimizer=PLAIN_SGD)
    twin = supernet_of(built(WithoutNorm))
    ((inputs, target),) = next(Feed(data(), batch_size=8).epoch(0))
    for bin_counts in (np.array([4, 4]), np.array([1, 1]), None):
        pick = twin.pick([(inputs, target)], functional.cross_entropy, bin_counts=bin_counts)
        twin.loss((inputs, target), pick, functional.cross_entropy).backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert_same_state(supernet.model, twin.model)


@pytest.mark.parametrize("sharing", [LocallyFree(1), Bilateral()])
def test_accumulated_micro_batches_are_one_large_batch(sharing, tmp_path):
    large, small = tmp_path / "large", tmp_path / "small"
    one = trained(supernet_of(built(WithoutNorm), sharing), large, epochs=2, batch_size=16)
    two = trained(supernet_of(built(WithoutNorm), sharing), small, epochs=2, batch_size=4, accumulate=4)
    choices = [[(line["candidate"], line["num_candidates"]) for line in log_of(path)] for path in (large, small)]
    assert choices[0] == choices[1]
    assert len(set(choices[0])) > 1 or isinstance(sharing, Bilateral)
    losses = [[line["loss"] for line in log_of(path)] for path in (large, small)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for name, parameter in one.model.named_parameters():
        torch.testing.assert_close(two.model.get_parameter(name), parameter, rtol=1e-4, atol=1e-5)


def test_gradients_are_clipped_to_a_norm():
    before = built(WithoutNorm)
    after = trained(supernet_of(before), max_steps=1, clip_norm=0.01, optimizer=PLAIN_SGD).model
    moved = sum((p - q).pow(2).sum().item() for p, q in zip(before.parameters(), after.parameters(), strict=True))
    assert moved**0.5 == pytest.approx(0.1 * 0.01, rel=1e-3)  # learning rate times norm


def test_a_high_clip_norm_changes_nothing():
    assert_same_state(trained(supernet_of(), clip_norm=1e6).model, trained(supernet_of()).model)


class Watched(Plain):
    """Notes the type and memory format of what the first convolution returns."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        self.seen: list[tuple[torch.dtype, bool]] = []

    def forward(self, x):
        one = self.one(x)
        self.seen.append((one.dtype, one.is_contiguous(memory_format=torch.channels_last)))
        return super().forward(x)


def test_bf16(tmp_path):
    model = built(Watched)
    supernet = supernet_of(model)
    supernet.model.seen.clear()
    trained(supernet, tmp_path, data=data(256), epochs=2, amp="bf16")
    assert {dtype for dtype, _ in supernet.model.seen} == {torch.bfloat16}
    assert {parameter.dtype for parameter in supernet.parameters()} == {torch.float32}
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert np.mean(losses[-15:]) < 0.65 * np.mean(losses[:5])


def test_channels_last_computes_the_same():
    one, two = supernet_of(built(Watched)), supernet_of(built(Watched))
    two.model.seen.clear()
    trained(one)
    trained(two, channels_last=True)
    assert {is_last for _, is_last in two.model.seen} == {True}
    assert two.model.two.weight.is_contiguous(memory_format=torch.channels_last)
    for name, parameter in one.model.named_parameters():
        torch.testing.assert_close(two.model.get_parameter(name), parameter, rtol=1e-4, atol=1e-5)


def test_gradients_left_by_another_loop_are_not_trained_on():
    supernet = supernet_of()
    functional.cross_entropy(supernet(batch()[0]), batch()[1]).backward()
    clean = copy.deepcopy(supernet)
    clean.zero_grad()
    assert_same_state(trained(supernet, max_steps=1).model, trained(clean, max_steps=1).model)


def test_checking_the_first_batch_leaves_no_trace():
    def frozen(output, target):
        return functional.cross_entropy(output, target) * 0  # no gradient moves anything

    supernet = supernet_of(sharing=LocallyFree(0))
    before = copy.deepcopy(supernet.model)
    trained(supernet, max_steps=1, loss=frozen, optimizer=PLAIN_SGD)
    for name, parameter in before.named_parameters():
        assert torch.equal(parameter, supernet.model.get_parameter(name))
    assert int(supernet.model.norm_one.num_batches_tracked) == 1  # and not one more for the check


def test_a_user_model_in_eval_mode_is_trained_in_train_mode():
    supernet = supernet_of().eval()
    trained(supernet, max_steps=1)
    assert int(supernet.model.norm_one.num_batches_tracked) == 1


def test_frozen_parameters_stay():
    model = built()
    model.one.weight.requires_grad_(False)
    supernet = trained(supernet_of(model))
    assert torch.equal(supernet.model.one.weight, model.one.weight)
    assert not torch.equal(supernet.model.two.weight, model.two.weight)


def test_equal_seeds_train_equal_supernets():
    assert_same_state(trained(supernet_of(), seed=1).model, trained(supernet_of(), seed=1).model)
    assert not torch.equal(
        trained(supernet_of(), seed=1).model.one.weight, trained(supernet_of(), seed=2).model.one.weight
    )


def test_tensorboard_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    train_supernet(
        supernet_of(), data(), TrainConfig(epochs=1, batch_size=8), directory=tmp_path, quiet=True, tensorboard=True
    )
    assert list((tmp_path / "tensorboard").iterdir())
