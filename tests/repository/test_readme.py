"""The README's code runs on a model and data of one's own, with the quick effort; its demo is what was measured."""

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import cafenet
from benchmarks.common.results_file import Results
from benchmarks.demo.__main__ import PART, table, with_results

README = Path(__file__).parents[2] / "README.md"

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4),
        )
"""

DATA = """
import torch
from torch.utils.data import TensorDataset

def examples(n, seed):
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=chance)
    images = 0.3 * torch.randn(n, 1, 28, 28, generator=chance)
    images[torch.arange(n), 0, 7 * labels + 3] += 1
    return TensorDataset(images, labels)

train, val, test = examples(256, 0), examples(128, 1), examples(128, 2)
"""


def test_python_blocks_of_the_readme_run(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "mydata.py").write_text(DATA)
    (tmp_path / "readme.py").write_text(code.replace("test_data=test", 'test_data=test, effort="quick"'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        net, data = importlib.import_module("net").Net(), importlib.import_module("mydata")
        config = cafenet.TrainConfig(epochs=10, batch_size=32)
        trained = cafenet.train_model(net, torch.zeros(1, 1, 28, 28), data.train, config, quiet=True)
        torch.save(trained.state_dict(), "net.pt")
        names = runpy.run_path("readme.py")
    finally:
        for module in ("net", "mydata"):
            sys.modules.pop(module, None)
    result, model = names["result"], names["model"]
    assert result.costs["flops"] <= 0.25 * cafenet.trace(model, torch.zeros(1, 1, 28, 28)).flops()
    loaded = cafenet.load(tmp_path / "slim.pt", names["Net"]())
    assert [loaded[0].out_channels, loaded[3].out_channels] == list(result.widths.values())
    said = capsys.readouterr()
    assert "The model is trained" in said.err
    assert "% of the computation" in said.out


def test_the_demo_in_the_readme_is_what_its_results_make():
    text = README.read_text(encoding="utf-8")
    results = Results(README.parent / "benchmarks" / "demo" / "results.json", any_version=True)
    assert text == with_results(text, results)
    assert table(results.rows(PART)) in text
    assert "of the computation" in text


def test_the_commands_of_the_readme_exist():
    from cafenet.cli.main import main

    commands = set(re.findall(r"^cafenet (\w+)", README.read_text(), flags=re.MULTILINE))
    assert {"run", "recipes", "export", "inspect"} <= commands
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
