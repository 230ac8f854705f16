"""A training loop of the user's own: the supernet of a model, a step on a batch, and the search."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import cafenet
from cafenet.errors import BudgetError, CheckpointError, TrainingError
from cafenet.pipeline.result import SearchResults
from cafenet.searching.latency.measure import Latency
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.sharing import LocallyFree
from tests.helpers.small_search import TRAIN, VALIDATION
from tests.helpers.small_training import batch, built

IMAGES, LABELS = batch()
FEW = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4), num_finalists=1)


def trained(supernet: cafenet.Supernet, steps: int = 6) -> cafenet.Supernet:
    """Train as the documentation says."""
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.1)
    supernet.train()
    for _ in range(steps):
        supernet.step((IMAGES, LABELS), "cross_entropy").loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return supernet


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_model_and_its_inputs_are_enough():
    model = built(dropout=0.0)
    short = cafenet.Supernet(model, IMAGES)
    space = cafenet.trace(model, IMAGES)
    long = cafenet.Supernet(model, space, flops_sensitive_bins(space), LocallyFree(0))
    assert short.space.full_widths == long.space.full_widths
    assert same_weights(trained(short), trained(long))


def test_steps_sample_near_the_budget_that_was_told_once():
    # half the FLOPs is sampled from 0.7 x 0.5 = 0.35 to 1.3 x 0.5 = 0.65, up to the nearest whole bins
    supernet = cafenet.Supernet(built(), IMAGES, budget="50%")
    assert supernet.flops_band == pytest.approx((0.35, 0.65))
    widths = [supernet.step((IMAGES, LABELS), "cross_entropy").pick.bin_counts for _ in range(30)]
    shares = supernet.space.flops(supernet.binned.bins.widths(np.array(widths))) / supernet.space.flops()
    assert shares.min() > 0.25
    assert shares.max() < 0.75
    assert len({tuple(each) for each in widths}) > 3
    # two budgets share one supernet: from 0.7 x 0.25 to 1.3 x 0.5
    both = cafenet.Supernet(built(), IMAGES, budget=["50%", "25%"])
    assert both.flops_band == pytest.approx((0.175, 0.65))


def test_the_search_returns_what_cafenet_search_returns(tmp_path):
    model = built()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    supernet = trained(cafenet.Supernet(model, IMAGES, budget="50%"))
    result = supernet.search(TRAIN, VALIDATION, options=FEW, directory=tmp_path / "found", quiet=True)
    assert isinstance(result, cafenet.SearchResult)
    assert result.budget == "50%"
    assert result.costs["flops"] <= 0.5 * supernet.space.flops()
    assert supernet.training  # as it was
    assert result.gain is not None
    assert result.gain.after.flops == result.costs["flops"]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    # its weights are those of the supernet, cut to the channels
    kept = supernet.space.extract(channels=result.channels, model=supernet.model)
    for (name, ours), (_, expected) in zip(result.model.named_parameters(), kept.named_parameters(), strict=True):
        assert torch.equal(ours, expected), name
    result.save(tmp_path / "slim.pt")
    assert cafenet.load(tmp_path / "slim.pt", built())(IMAGES).shape == result.model(IMAGES).shape
    assert result.report().exists()
    # a second call reads what the first one found
    again = supernet.search(TRAIN, VALIDATION, options=FEW, directory=tmp_path / "found", quiet=True)
    assert again.channels == result.channels


def test_several_budgets_and_a_slim_model_that_is_trained_further(tmp_path):
    supernet = trained(cafenet.Supernet(built(), IMAGES))
    config = cafenet.TrainConfig(epochs=1, batch_size=32)
    results = supernet.search(TRAIN, VALIDATION, ["75%", "50%"], finetune=config, options=FEW, quiet=True)
    assert isinstance(results, SearchResults)
    assert results.budgets == ("75%", "50%")
    kept = supernet.space.extract(channels=results["50%"].channels, model=supernet.model)
    moved = [
        not torch.equal(ours, start)
        for ours, start in zip(results["50%"].model.parameters(), kept.parameters(), strict=True)
    ]
    assert all(moved)


def test_channels_of_a_sorted_supernet_are_those_of_the_users_model():
    model = built()
    supernet = cafenet.Supernet(model, IMAGES, sort_by_importance=True)
    assert not np.array_equal(supernet.order, np.arange(len(supernet.order)))
    result = supernet.search(TRAIN, VALIDATION, "50%", options=FEW, quiet=True)
    expected = supernet.space.extract(channels=result.channels)  # untrained: the weights of the user's model
    for (name, ours), (_, theirs) in zip(result.model.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_checkpoint_of_any_loop_continues_exactly():
    def begun() -> cafenet.Supernet:
        torch.manual_seed(0)  # of the dropout
        return trained(cafenet.Supernet(built(), IMAGES, budget="50%"))

    whole, first = begun(), begun()
    resumed = cafenet.Supernet(built(), IMAGES, budget="50%", seed=5)
    resumed.load_state_dict(first.state_dict())
    for supernet in (whole, resumed):
        torch.manual_seed(1)
        trained(supernet)
    assert same_weights(whole, resumed)  # also the state of the sampling


def test_trials_run_in_the_precision_of_the_training_pass():
    seen = []

    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.two(self.one(x).relu())
            seen.append((torch.is_grad_enabled(), out.dtype))
            return out

    model, data = Noting(), (torch.randn(8, 6), torch.arange(8) % 4)
    space = cafenet.trace(model, data[0])
    supernet = cafenet.Supernet(model, space, sharing=LocallyFree(1)).train()
    seen.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step = supernet.step(data, functional.cross_entropy, bin_counts=supernet.binned.bins.num_bins // 2)
    assert step.pick.num_candidates > 1
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    assert {grad for grad, _ in seen} == {True, False}


def test_mistakes_end_in_one_line():
    supernet = cafenet.Supernet(built(), IMAGES)
    with pytest.raises(BudgetError, match="a search needs a budget"):
        supernet.search(TRAIN, VALIDATION)
    with pytest.raises(TrainingError, match="a batch must be a pair"):
        supernet.step([IMAGES, LABELS, LABELS], "cross_entropy")
    with pytest.raises(TrainingError, match="loss must be"):
        supernet.step((IMAGES, LABELS), "crossentropy")
    with pytest.raises(BudgetError):
        cafenet.Supernet(built(), IMAGES, budget="half")
    other = cafenet.Supernet(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(2, 4))
    with pytest.raises(CheckpointError, match="same model"):
        other.set_extra_state(supernet.get_extra_state())


def test_a_share_of_the_latency_is_measured_with_the_options_of_the_search(monkeypatch):
    """Every channel takes a millisecond, in a batch of two as the options ask for."""
    asked = []

    def measured(model, inputs, settings, reference=None):
        asked.append(settings.batch_size)
        return float(model.one.out_channels + model.two.out_channels)

    def measured_in_turns(models, inputs, settings, reference=None):
        return [Latency(*[measured(model, inputs, settings)] * 3) for model in models]

    for place in ("pipeline.own_loop", "searching.width_search", "searching.latency.estimate"):
        monkeypatch.setattr(f"cafenet.{place}.measure_latency", measured)
    monkeypatch.setattr("cafenet.pipeline.gain.measure_latencies", measured_in_turns)
    supernet = cafenet.Supernet(built(), IMAGES, budget="70% latency")
    assert not asked  # it is measured when the search begins
    options = cafenet.SearchOptions(
        algorithm=cafenet.RandomSearch(samples=4), latency=cafenet.LatencyConfig(batch_size=2)
    )
    result = supernet.search(TRAIN, VALIDATION, options=options, quiet=True)
    assert sum(result.widths.values()) <= 0.7 * sum(supernet.space.full_widths.values())
    assert set(asked) == {2}
