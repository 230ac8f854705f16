"""Measuring leaves everything as it was; the estimate is monotone, says its error and is kept in a file."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cafenet
from cafenet.errors import BudgetError
from cafenet.searching.latency import estimate as latency_model
from cafenet.searching.latency import measure as latency
from cafenet.searching.latency.estimate import LatencyModel, fit_latency
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.space.bins import uniform_bins
from tests.helpers.networks import Forward, contents

IMAGE = torch.zeros(1, 3, 4, 4)


class Watched(nn.Module):
    """Remembers, outside of itself, what its forward sees; takes the times that it is told on a clock of its own."""

    def __init__(self, seconds=()):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.seen, self.seconds, self.clock = [], list(seconds), [0.0]

    def __deepcopy__(self, memo):
        copy = Watched()
        copy.load_state_dict(self.state_dict())
        copy.seen, copy.seconds, copy.clock = self.seen, self.seconds, self.clock
        return copy

    def forward(self, x, **others):
        modes = (self.training, self.dropout.training, torch.is_grad_enabled(), torch.get_num_threads())
        self.seen.append((x.clone(), {name: other.clone() for name, other in others.items()}, modes))
        self.calls += 1
        x.add_(torch.rand(1))
        for other in others.values():
            other.zero_()
        if self.seconds:
            self.clock[0] += self.seconds.pop(0)
        return self.layer(x)


def small_space():
    return cafenet.trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 2, 1)), IMAGE)


def test_the_median_of_the_runs_after_the_warmup(monkeypatch):
    model = Watched([9.0, 7.0, 0.001, 0.005, 0.002, 0.009, 0.003])
    monkeypatch.setattr(latency.time, "perf_counter", lambda: model.clock[0])
    monkeypatch.setattr(latency.time, "process_time", lambda: model.clock[0])
    assert measure_latency(model, torch.zeros(1, 2), LatencyConfig(warmup=2, repeats=5)) == pytest.approx(3.0)
    assert len(model.seen) == 7


def test_time_in_which_others_have_the_core_does_not_count(monkeypatch):
    model = Watched([0.008, 0.009, 0.007, 0.008, 0.008])
    processor = iter([0.0, 0.002, 1.0, 1.001, 2.0, 2.003, 3.0, 3.002, 4.0, 4.02])  # the last: a helper that spins
    monkeypatch.setattr(latency.time, "perf_counter", lambda: model.clock[0])
    monkeypatch.setattr(latency.time, "process_time", lambda: next(processor))
    assert measure_latency(model, torch.zeros(1, 2), LatencyConfig(warmup=0, repeats=5)) == pytest.approx(2.0)


def test_several_threads_are_timed_by_the_clock(monkeypatch):
    model = Watched([0.008, 0.009, 0.007])
    monkeypatch.setattr(latency.time, "perf_counter", lambda: model.clock[0])
    settings = LatencyConfig(num_threads=2, warmup=0, repeats=3)
    assert measure_latency(model, torch.zeros(1, 2), settings) == pytest.approx(8.0)


def test_nothing_is_changed():
    model, x = Watched().train(), torch.zeros(1, 2)
    model.layer.eval()
    before, modes, rng = contents(model), [m.training for m in model.modules()], torch.get_rng_state()
    measure_latency(model, x, LatencyConfig(num_threads=2, repeats=2))
    assert {seen[2] for seen in model.seen} == {(False, False, False, 2)}
    assert contents(model) == before
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), rng)
    assert (torch.get_num_threads(), torch.is_grad_enabled(), x.tolist()) == (1, True, [[0, 0]])


def test_threads_are_given_back_after_an_error():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measure_latency(nn.Linear(3, 3), torch.zeros(1, 2), LatencyConfig(num_threads=2))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("batch_size", "expected"), [(1, [0.0]), (2, [0.0, 1.0]), (5, [0.0, 1.0, 0.0, 1.0, 0.0])])
def test_inputs_get_the_batch_size_along_the_dimension_of_the_examples(batch_size, expected):
    model = Watched()
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    inputs = {"x": x, "mask": torch.tensor([True, False]), "table": torch.ones(3, 2), "scale": torch.tensor(2.0)}
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    measure_latency(model, inputs, LatencyConfig(batch_size=batch_size, warmup=0, repeats=1))
    assert all(torch.equal(inputs[name], tensor) for name, tensor in before.items())
    ((seen, others, _),) = model.seen
    assert seen[:, 0].tolist() == expected
    assert others["mask"].tolist() == [value == 0 for value in expected]
    assert (others["table"].shape, others["scale"].tolist()) == ((3, 2), 2.0)


def test_a_model_without_values_cannot_be_measured():
    with pytest.raises(BudgetError, match="the model must hold values, but its weight is on the meta device; build it"):
        measure_latency(nn.Linear(2, 2, device="meta"), torch.zeros(1, 2), LatencyConfig())


def test_all_problems_of_settings_in_one_message():
    with pytest.raises(BudgetError) as caught:
        LatencyConfig(batch_size=0, num_threads=-1, warmup=-2, repeats=0)
    for part in ("batch_size must be a whole number of at least 1, but is 0", "num_threads", "warmup", "repeats"):
        assert part in str(caught.value)
    with pytest.raises(BudgetError, match="device must be one that PyTorch can run on here, but is 'abacus'; use cpu"):
        LatencyConfig(device="abacus")


@pytest.mark.parametrize("device", ["meta", "mps" if torch.cuda.is_available() else "cuda"])
def test_devices_that_cannot_run(device):
    with pytest.raises(BudgetError, match=f"but is '{device}'"):
        LatencyConfig(device=device)


def random_widths(n, seed=0):
    return np.random.default_rng(seed).integers(1, [9, 7], size=(n, 2))


def test_latency_that_is_a_sum_of_the_terms_is_found_exactly():
    space = small_space()
    true = lambda widths: 1.0 + 2.0 * space.flops(widths) / space.flops() + 0.5 * space.params(widths) / space.params()  # noqa: E731
    model = LatencyModel(space, random_widths(12), true(random_widths(12)))
    assert model.rates_ms == pytest.approx([1.0, 2.0, 0.5, 0.0, 0.0], abs=1e-6)
    assert model.predict(random_widths(50, seed=1)) == pytest.approx(true(random_widths(50, seed=1)))
    assert model.error == pytest.approx(0.0, abs=1e-6)
    assert model.predict(random_widths(0)).shape == (0,)


def test_steps_of_a_runtime_are_part_of_the_estimate():
    layers = [nn.Conv2d(a, b, 1) for a, b in itertools.pairwise((3, 64, 96, 2))]
    space = cafenet.trace(nn.Sequential(*layers), IMAGE)
    rows = np.random.default_rng(0).integers(1, [65, 97], size=(48, 2))

    def true(widths):
        whole = np.minimum(-(-widths // 16) * 16, [64, 96])
        return 1.0 + 4.0 * space.flops(whole) / space.flops()

    model = LatencyModel(space, rows[:24], true(rows[:24]))
    assert model.shape[0] == 16
    assert model.predict(rows[24:]) == pytest.approx(true(rows[24:]), rel=0.01)
    assert model.error < 0.01
    every = np.stack(np.meshgrid(np.arange(1, 65), np.arange(1, 97), indexing="ij"), axis=-1)
    estimates = model.predict(every.reshape(-1, 2)).reshape(64, 96)
    assert (np.diff(estimates, axis=0) >= 0).all()
    assert (np.diff(estimates, axis=1) >= 0).all()


def test_an_estimate_does_not_depend_on_the_other_rows():
    sides = [3, *range(11, 22), 2]
    layers = [nn.Conv2d(a, b, 1) for a, b in itertools.pairwise(sides)]
    space = cafenet.trace(nn.Sequential(*layers), IMAGE)
    rows = np.random.default_rng(0).integers(1, sides[1:-1], size=(500, 11))
    model = LatencyModel(space, rows[:60], 1 / 3 + rows[:60] @ np.linspace(0.1, 0.9, 11))
    assert model.predict(rows).tolist() == [model.predict(row[None])[0] for row in rows]


def test_a_group_that_costs_time_but_no_flops_is_noticed():
    space = small_space()
    widths = random_widths(24)
    model = LatencyModel(space, widths, 1.0 + 5.0 * widths[:, 1] / 6)
    assert model.predict(np.array([[8, 6]]))[0] > 2 * model.predict(np.array([[8, 1]]))[0]
    assert model.error < 0.1


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(times=st.lists(st.floats(0.1, 10), min_size=6, max_size=6), seed=st.integers(0, 99))
def test_the_estimate_never_falls_with_a_width(times, seed):
    model = LatencyModel(small_space(), random_widths(6, seed), np.array(times))
    every = np.stack(np.meshgrid(np.arange(1, 9), np.arange(1, 7), indexing="ij"), axis=-1)
    estimates = model.predict(every.reshape(-1, 2)).reshape(8, 6)
    assert (np.diff(estimates, axis=0) >= 0).all()
    assert (np.diff(estimates, axis=1) >= 0).all()
    assert (estimates >= 0).all()


def test_the_error_is_that_of_measurements_left_out():
    space, widths = small_space(), random_widths(7)
    times = np.random.default_rng(1).uniform(1, 3, 7)
    errors = []
    for row in range(7):
        rest = [other for other in range(7) if other != row]
        estimate = LatencyModel(space, widths[rest], times[rest]).predict(widths[[row]])[0]
        errors.append(abs(estimate - times[row]) / times[row])
    assert LatencyModel(space, widths, times).error == pytest.approx(np.mean(errors))
    assert np.mean(errors) > 0.05


@pytest.fixture
def measured(monkeypatch):
    """The widths of all slim models that were measured; a model takes as many ms as it has params."""
    calls = []

    def fake(model, example_inputs, settings, reference):
        assert example_inputs is IMAGE
        assert isinstance(settings, LatencyConfig)
        calls.append((model[0].out_channels, model[1].out_channels))
        return float(sum(p.numel() for p in model.parameters()))

    monkeypatch.setattr(latency_model, "measure_latency", fake)
    return calls


def test_slim_models_are_measured_from_the_smallest_to_the_full(measured):
    space = small_space()
    bins = uniform_bins(space, 3)  # widths 4, 6, 8 and 2, 4, 6
    model = fit_latency(space, bins, IMAGE, LatencyConfig(), num_measured=100)
    assert sorted(measured) == [(a, b) for a in (4, 6, 8) for b in (2, 4, 6)]
    assert model.predict(np.array([[6, 2]]))[0] == pytest.approx(space.params([6, 2]))
    measured.clear()
    fit_latency(space, bins, IMAGE, LatencyConfig(), num_measured=3)
    assert {(4, 2), (8, 6)} <= set(measured)
    assert len(measured) <= 3
    with pytest.raises(BudgetError, match="at least 3 measured width vectors, but got 2"):
        fit_latency(space, bins, IMAGE, LatencyConfig(), num_measured=2)


def test_measurements_are_spread_over_the_costs(measured):
    space = cafenet.trace(nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 48, 1), nn.Conv2d(48, 2, 1)), IMAGE)
    fit_latency(space, uniform_bins(space, 48), IMAGE, LatencyConfig())
    shares = np.array([space.flops(list(widths)) for widths in measured]) / space.flops()
    assert 23 <= len(set(measured)) == len(measured) <= 24
    assert np.histogram(shares, bins=4, range=(0, 1))[0].min() >= 2


def test_kept_measurements_are_used_again(measured, tmp_path):
    space, path = small_space(), tmp_path / "deep" / "latency.json"
    arguments = (space, uniform_bins(space, 3), IMAGE, LatencyConfig())
    first = fit_latency(*arguments, cache=path)
    bin_counts = len(measured)
    again = fit_latency(*arguments, cache=str(path))
    assert len(measured) == bin_counts
    every = np.array([[4, 2], [6, 4], [8, 2]])
    assert again.predict(every).tolist() == first.predict(every).tolist()
    assert [file.name for file in path.parent.iterdir()] == ["latency.json"]
    assert json.loads(path.read_text())["format"] == "cafenet-latency"


def other_settings(space, bins):
    return space, bins, IMAGE, LatencyConfig(batch_size=2)


def other_bins(space, bins):
    return space, uniform_bins(space, 2), IMAGE, LatencyConfig()


def other_space(space, bins):
    space = cafenet.trace(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 2, 1)), IMAGE)
    return space, uniform_bins(space, 3), IMAGE, LatencyConfig()


@pytest.mark.parametrize("other", [other_settings, other_bins, other_space])
def test_measurements_of_something_else_are_replaced(measured, tmp_path, other):
    space, path = small_space(), tmp_path / "latency.json"
    bins = uniform_bins(space, 3)
    fit_latency(space, bins, IMAGE, LatencyConfig(), cache=path)
    measured.clear()
    fit_latency(*other(space, bins), cache=path)
    assert measured
    measured.clear()
    fit_latency(*other(space, bins), cache=path)
    assert not measured


def test_measurements_of_another_device_or_format_are_replaced(measured, tmp_path, monkeypatch):
    space, path = small_space(), tmp_path / "latency.json"
    arguments = (space, uniform_bins(space, 3), IMAGE, LatencyConfig())
    fit_latency(*arguments, cache=path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 99}))
    measured.clear()
    fit_latency(*arguments, cache=path)
    assert measured
    measured.clear()
    monkeypatch.setattr(latency_model, "machine_name", lambda device: "abacus")
    fit_latency(*arguments, cache=path)
    assert measured


@pytest.mark.parametrize("content", ["", "{}", "[1]", "null", '{"format": "other"}', '{"format": "cafenet-latency"}'])
def test_a_file_of_something_else_is_not_touched(measured, tmp_path, content):
    path = tmp_path / "notes.json"
    path.write_text(content)
    space = small_space()
    with pytest.raises(BudgetError, match=r"notes.json must be a file of latencies, but is not .*; remove it or use"):
        fit_latency(space, uniform_bins(space, 3), IMAGE, LatencyConfig(), cache=path)
    assert path.read_text() == content
    assert not measured


def test_a_failed_write_keeps_the_old_file(measured, tmp_path, monkeypatch):
    space, path = small_space(), tmp_path / "latency.json"
    bins = uniform_bins(space, 3)
    fit_latency(space, bins, IMAGE, LatencyConfig(), cache=path)
    before = path.read_text()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BudgetError, match=r"must be written to .*latency.json, but: no space left; use another path"):
        fit_latency(space, bins, IMAGE, LatencyConfig(batch_size=2), cache=path)
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["latency.json"]


def test_real_measurements():
    net = Forward(lambda net, x: net.b(net.a(x).relu()), a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 2, 1)).train()
    space = cafenet.trace(net, IMAGE)
    bins = uniform_bins(space, 4)
    model = fit_latency(space, bins, IMAGE, LatencyConfig(batch_size=2, warmup=1, repeats=3), num_measured=4)
    assert (model.latency_ms > 0).all()
    assert np.isfinite(model.predict(bins.widths(np.array([[1], [4]])))).all()


def test_a_file_of_latencies_that_no_system_can_name():
    settings = LatencyConfig(cache="a\0b", repeats=1, warmup=0)
    with pytest.raises(BudgetError, match=r"latencies must be written to .* name another file"):
        measure_latency(nn.Conv2d(3, 4, 1), torch.zeros(1, 3, 2, 2), settings)
