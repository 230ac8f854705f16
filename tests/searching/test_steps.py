"""Steps of a runtime are found by a few measurements, whatever they are, and noise is not taken for them."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.searching.latency import steps as steps_module
from cafenet.searching.latency.measure import Latency, LatencyConfig
from cafenet.searching.latency.steps import find_steps

IMAGE = torch.zeros(1, 3, 8, 8)


def space_of(*channels):
    layers = [nn.Conv2d(a, b, 1) for a, b in zip((3, *channels), (*channels, 2), strict=True)]
    return cafenet.trace(nn.Sequential(*layers), IMAGE)


def blocks(channels, step):
    return math.ceil(channels / step) * step


def products(model, step):
    """Multiply-adds of a model that computes whole blocks of channels, in ms."""
    return 1 + sum(blocks(layer.in_channels, step) * blocks(layer.out_channels, step) for layer in model) / 5000


@pytest.fixture
def runtime(monkeypatch):
    """A runtime whose time is a function of the model; the quartiles are 0.1% around it."""
    chosen, asked = {}, []

    def measured(models, example_inputs, settings, reference=None):
        asked.extend([layer.out_channels for layer in model if isinstance(layer, nn.Conv2d)][:-1] for model in models)
        times = [chosen["ms"](model) for model in models]
        return [Latency(each, 0.999 * each, 1.001 * each) for each in times]

    monkeypatch.setattr(steps_module, "measure_latencies", measured)
    monkeypatch.setattr(steps_module, "measure_latency", lambda model, *_: chosen["ms"](model))

    def times(function):
        chosen["ms"] = function
        return asked

    return times


@pytest.mark.parametrize("step", [1, 2, 4, 8, 16, 32])
def test_steps_are_found(runtime, step):
    asked = runtime(lambda model: products(model, step))
    found = find_steps(space_of(96, 128, 96), IMAGE, LatencyConfig())
    assert found.divisor == step
    assert list(found.times_ms) == [0, 1, 2, 4, 8, 16, 32]
    assert asked == [[32 + n, 64 + n, 32 + n] for n in (0, 1, 2, 4, 8, 16, 32)]


def test_a_slow_path_for_other_widths_is_a_step(runtime):
    runtime(lambda model: products(model, 1) * (1 if all(each.out_channels % 4 == 0 for each in model[:-1]) else 5))
    assert find_steps(space_of(96, 128, 96), IMAGE, LatencyConfig()).divisor == 4


def test_narrow_networks_have_a_shorter_line(runtime):
    asked = runtime(lambda model: products(model, 8))
    found = find_steps(space_of(32, 40), IMAGE, LatencyConfig())
    assert (found.divisor, list(found.times_ms)) == (8, [0, 1, 2, 4, 8, 16])
    assert asked[0] == [16, 16]


def test_networks_that_cannot_show_steps(runtime):
    asked = runtime(lambda model: products(model, 8))
    found = find_steps(space_of(8, 8), IMAGE, LatencyConfig())
    assert (found.divisor, found.groups, asked) == (1, (), [])
    assert found.sentence("openvino") == (
        "Widths are multiples of 1: no width group is wide enough to show steps of openvino."
    )


def test_cheap_groups_stay_whole(runtime):
    runtime(lambda model: products(model, 8))
    space = cafenet.trace(nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 2, 1)), IMAGE)
    wide = [group.name for group in space.groups]
    assert set(find_steps(space, IMAGE, LatencyConfig()).groups) == set(wide)
    model = nn.Sequential(nn.Conv2d(3, 128, 1), nn.Conv2d(128, 128, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(128, 64, 1))
    space = cafenet.trace(nn.Sequential(*model, nn.Conv2d(64, 2, 1)), IMAGE)
    runtime(lambda model: 1.0)
    assert find_steps(space, IMAGE, LatencyConfig()).groups == ("0", "1")  # 3 has 1/64 of their positions


def test_noise_is_no_step(monkeypatch):
    rng = np.random.default_rng(0)

    def noisy(models, example_inputs, settings, reference=None):
        rounds = [rng.normal(products(model, 1), 0.3, settings.repeats) for model in models]
        return [Latency(*np.quantile(each, [0.5, 0.25, 0.75]).tolist()) for each in rounds]

    monkeypatch.setattr(steps_module, "measure_latencies", noisy)
    monkeypatch.setattr(steps_module, "measure_latency", lambda model, *_: products(model, 1))
    found = [find_steps(space_of(96, 128, 96), IMAGE, LatencyConfig()).divisor for _ in range(20)]
    assert found.count(1) >= 18


def test_a_device_elsewhere_is_asked_once_for_each_width():
    asked = []

    def phone(file):
        program = torch.export.load(file)
        weights = [each for each in program.state_dict.values() if each.ndim == 4]
        asked.append(weights[0].shape[0])
        return 1 + sum(blocks(each.shape[0], 8) * blocks(each.shape[1], 8) for each in weights) / 1000

    phone.file_format = "pt2"
    found = find_steps(space_of(32, 40), IMAGE, LatencyConfig(runtime=phone))
    assert (found.divisor, asked) == (8, [16, 17, 18, 20, 24, 32])
    assert found.sentence("phone") == (
        "Widths are multiples of 8: phone has steps of 8 channels (measured at 6 widths of 2 groups)."
    )


@pytest.mark.slow
def test_steps_of_a_real_runtime():
    pytest.importorskip("onnxruntime")
    layers = []
    for a, b in ((3, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(a, b, 1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1, groups=b), nn.ReLU()]
    image = torch.zeros(1, 3, 32, 32)
    space = cafenet.trace(nn.Sequential(*layers, nn.Conv2d(128, 10, 1)), image)
    found = find_steps(space, image, LatencyConfig(runtime="onnxruntime"))
    assert found.divisor in (4, 8, 16, 32)  # depthwise convolutions of other widths go the slow way
    assert found.times_ms[1] > 1.2 * found.expected_ms[1]
