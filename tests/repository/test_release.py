"""What `make release` puts together: documentation of several versions, slim models, wheels with extras."""

import json
import tarfile
from pathlib import Path

import torch

import cafenet
from tests.helpers.tiny_run import recipe_file, run
from tools.docs.versions import add_version
from tools.release.models import pack


def test_documentation_of_versions_lies_side_by_side(tmp_path: Path):
    site, output = tmp_path / "site", tmp_path / "docs"
    site.mkdir()
    for version in ("0.9.0", "0.10.0", "0.10.0rc1", "0.9.0"):
        (site / "index.html").write_text(f"of {version}")
        listed = add_version(site, output, version)
    assert listed == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert {each: (output / each / "index.html").read_text() for each in listed} == {
        each: f"of {each}" for each in listed
    }
    read = json.loads((output / "versions.json").read_text())
    assert [(each["version"], each["aliases"]) for each in read] == [
        ("0.10.0", ["latest"]),
        ("0.10.0rc1", []),
        ("0.9.0", []),
    ]
    assert "url=0.10.0/index.html" in (output / "index.html").read_text()


def test_slim_models_of_a_run_are_packed_with_what_loads_them(tmp_path: Path, monkeypatch):
    run(recipe_file(tmp_path), tmp_path / "run")
    archive = pack(tmp_path / "run", tmp_path / "release")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "there", filter="data")
    place = tmp_path / "there" / "cafenet-models"
    document = json.loads((place / "models.json").read_text())
    assert set(document["models"]) == {path.name for path in place.glob("*.pt")}
    assert "50pct-uniform.pt" in document["models"]
    monkeypatch.chdir(place)
    for model in document["models"].values():
        loaded = eval(model["load"], {"cafenet": cafenet})  # the line as a user would copy it
        assert sum(parameter.numel() for parameter in loaded.parameters()) == model["params"]
        assert cafenet.trace(loaded, torch.zeros(1, 1, 28, 28)).flops() == model["flops"]
