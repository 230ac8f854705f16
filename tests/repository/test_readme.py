"""The README's Python code runs as it stands, on a model and data of one's own; only the epochs are cut short."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import cafenet

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

train, val = examples(256, 0), examples(128, 1)
"""


def test_python_blocks_of_the_readme_run(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    code = re.sub(r"epochs=\d+", "epochs=1", "\n".join(blocks))
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "mydata.py").write_text(DATA)
    (tmp_path / "readme.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        names = runpy.run_path("readme.py")
    finally:
        for module in ("net", "mydata"):
            sys.modules.pop(module, None)
    space, found, result, slim = (names[name] for name in ("space", "found", "result", "slim"))
    assert names["page"].exists()
    assert found.costs["flops"] <= 0.5 * space.flops()
    assert result.costs["flops"] <= 0.5 * space.flops()
    loaded = cafenet.load(tmp_path / "slim.pt", names["Net"]())
    for model, widths in ((loaded, result.widths), (slim, found.widths)):
        assert [model[0].out_channels, model[3].out_channels] == list(widths.values())


def test_the_commands_of_the_readme_exist():
    from cafenet.cli.main import main

    commands = set(re.findall(r"^cafenet (\w+)", README.read_text(), flags=re.MULTILINE))
    assert {"run", "recipes", "export", "inspect"} <= commands
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
