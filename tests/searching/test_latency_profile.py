"""A profile says what fewer channels of each group save, and whether that can be told from noise."""

import json

import pytest
import torch
from torch import nn

import cafenet
from cafenet.cli.main import main
from cafenet.searching.latency import profile as profile_module
from cafenet.searching.latency.measure import Latency, LatencyConfig
from cafenet.searching.latency.profile import profile_latency

IMAGE = torch.zeros(1, 3, 4, 4)


@pytest.fixture
def by_channels(monkeypatch):
    """A millisecond for a channel of the first layer, a tenth for one of the second; quartiles half a ms around it."""

    def measured(models, example_inputs, settings, reference=None):
        times = [model[0].out_channels + model[1].out_channels / 10 for model in models]
        return [Latency(each, each - 0.5, each + 0.5) for each in times]

    monkeypatch.setattr(profile_module, "measure_latencies", measured)


def test_savings_by_group(by_channels):
    space = cafenet.trace(nn.Sequential(nn.Conv2d(3, 20, 3), nn.Conv2d(20, 10, 1), nn.Conv2d(10, 2, 1)), IMAGE)
    profile = profile_latency(space, IMAGE, LatencyConfig())
    first, second = profile.groups
    assert (profile.full_ms, first.group, second.group) == (21.0, "0", "1")
    assert (first.tenth.channels, first.tenth.ms, first.half.channels, first.half.ms) == (18, 2.0, 10, 10.0)
    assert (second.tenth.channels, second.half.channels) == (9, 5)
    assert second.half.ms == pytest.approx(0.5)  # 5 channels of a tenth each
    assert second.tenth.ms == pytest.approx(0.1)
    assert first.tenth.is_clear
    assert not second.tenth.is_clear  # -0.4 to 0.6
    text = profile.shown().text()
    assert text.startswith("torch: 21 ms for the full model")
    assert "20 -> 18" in text
    assert "~ 0.100 ms (0.5%)" in text


def test_widths_keep_their_divisor(by_channels):
    layers = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1, groups=4), nn.Conv2d(8, 2, 1)]
    profile = profile_latency(cafenet.trace(nn.Sequential(*layers), IMAGE), IMAGE, LatencyConfig())
    for each in profile.groups:
        assert each.half.channels <= each.tenth.channels < each.channels


def test_the_command(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 20, 3), nn.Conv2d(20, 2, 1))\n"
    )
    arguments = ["profile", f"{tmp_path}/net.py:build", "--input", "3,8,8", "--repeats", "3"]
    assert main(arguments) == 0
    assert "ms for the full model" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["tenth"]["channels"] == 18
    assert main([*arguments, "--runtime", "tflite"]) == 2
    assert "runtime must be torch, torch.compile" in capsys.readouterr().err
