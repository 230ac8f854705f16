"""`cafenet doctor` says what is installed, what runs it, and what does not fit together."""

import importlib.metadata
import re
from pathlib import Path

import pytest
import torch

from cafenet.cli.main import main
from cafenet.common import environment
from cafenet.common.environment import find_problems


def test_it_prints_versions_devices_and_extras(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"torch {importlib.metadata.version('torch')}" in said
    assert f"device:   cpu: {environment.os.cpu_count()} cores, {torch.get_num_threads()} threads" in said
    lines = [line for line in said.splitlines() if line.startswith("optional: ")]
    assert len(lines) == len(environment.OPTIONAL)


def test_it_looks_for_what_the_package_asks_for():
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(environment.NEEDED) == {_name(each) for each in project["dependencies"]}
    extras = project["optional-dependencies"]
    for extra, names in environment.OPTIONAL.items():
        assert set(names) <= {_name(each) for each in extras[extra]}, extra
    assert set(extras) - set(environment.OPTIONAL) == {"peers", "notebooks", "docs", "dev"}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0]


def test_what_is_not_installed_is_named_with_its_extra(capsys, monkeypatch):
    real = environment.installed_version
    monkeypatch.setattr(environment, "installed_version", lambda name: None if name == "timm" else real(name))
    assert main(["doctor"]) == 0
    assert "optional: missing: timm; pip install 'cafenet[timm]'" in capsys.readouterr().out


@pytest.fixture
def torchvision_of(monkeypatch):
    def asks_for(torch_version: str) -> None:
        monkeypatch.setattr(environment, "requires", lambda name: ["numpy", f"torch=={torch_version}"])

    return asks_for


def test_a_torchvision_of_another_torch_has_a_remedy(torchvision_of):
    torchvision_of("2.5.1")
    (problem,) = find_problems({"torch": "2.13.0+cpu", "torchvision": "0.20.1"})
    assert problem.finding == "torchvision 0.20.1 belongs to torch 2.5.1, but torch is 2.13.0+cpu"
    assert problem.remedy == "pip install torch==2.5.1, or the torchvision of torch 2.13.0+cpu"


@pytest.mark.parametrize("lacks", [True, False])
def test_compiled_operators_that_do_not_load(torchvision_of, monkeypatch, lacks):
    pytest.importorskip("torchvision")
    torchvision_of("2.13.0")
    monkeypatch.setattr(environment, "lacks_compiled_operators", lambda: lacks)
    problems = find_problems({"torch": "2.13.0+cpu", "torchvision": "0.28.0"})
    assert ["compiled operators do not load" in problem.finding for problem in problems] == [True] * lacks


def test_an_old_torch_and_a_trainer_without_accelerate():
    assert [problem.finding for problem in find_problems({"torch": "2.3.1"})] == [
        "torch must be 2.4 or later, but is 2.3.1"
    ]
    assert find_problems({"torch": "2.10.0"}) == ()
    (problem,) = find_problems({"torch": "2.13.0", "transformers": "5.0.0", "accelerate": None})
    assert "without accelerate" in problem.finding
    assert find_problems({"torch": "2.13.0", "transformers": "5.0.0", "accelerate": "1.15.0"}) == ()
