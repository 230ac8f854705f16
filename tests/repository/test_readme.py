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


QUICK = {
    "test_data=test": 'test_data=test, effort="quick"',
    "search(train, val)": "search(train, val, options=cafenet.SearchOptions(algorithm=cafenet.Trend(samples=20)))",
}


def readme_code(place, number):
    """A file with one of the README's Python blocks, with less work."""
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[number]
    for said, quicker in QUICK.items():
        code = code.replace(said, quicker)
    (place / "readme.py").write_text(code)
    return "readme.py"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a model and data of one's own."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "mydata.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in ("net", "mydata"):
        sys.modules.pop(module, None)


def test_the_readme_makes_a_trained_model_smaller(place, capsys):
    net, data = importlib.import_module("net").Net(), importlib.import_module("mydata")
    config = cafenet.TrainConfig(epochs=10, batch_size=32)
    trained = cafenet.train_model(net, torch.zeros(1, 1, 28, 28), data.train, config, quiet=True)
    torch.save(trained.state_dict(), "net.pt")
    names = runpy.run_path(readme_code(place, 0))
    result, model = names["result"], names["model"]
    assert result.costs["flops"] <= 0.25 * cafenet.trace(model, torch.zeros(1, 1, 28, 28)).flops()
    loaded = cafenet.load(place / "slim.pt", names["Net"]())
    assert [loaded[0].out_channels, loaded[3].out_channels] == list(result.widths.values())
    said = capsys.readouterr()
    assert "The model is trained" in said.err
    assert "% of the computation" in said.out


def test_the_readme_has_a_loop_of_ones_own(place):
    names = runpy.run_path(readme_code(place, 1))
    result, image = names["result"], torch.zeros(1, 1, 28, 28)
    assert result.costs["flops"] <= 0.5 * cafenet.trace(names["Net"](), image).flops()
    assert result.model(image).shape == (1, 4)
    assert len(re.findall("```python", README.read_text())) == 2


def test_the_readme_names_every_extra_for_users():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    extras = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = README.read_text().split("| extras | for |")[1].split("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(extras) - {"peers", "docs", "dev"}


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
