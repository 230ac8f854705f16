"""The wheel holds the whole package: it is built, installed elsewhere and imported from there."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path, **env: str) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=os.environ | env)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_wheel_is_complete_and_imports_from_where_it_is_installed(tmp_path: Path):
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "target"
    # A copy, so that the build leaves nothing behind in the checkout and takes nothing stale from it.
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), cwd=source)
    (wheel,) = wheels.iterdir()
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), str(wheel), cwd=tmp_path)

    packaged = {path.relative_to(source / "src") for path in (source / "src" / "cafenet").rglob("*.*")}
    installed = {path.relative_to(target) for path in (target / "cafenet").rglob("*.*")}
    assert packaged <= installed
    assert (target / "cafenet" / "py.typed").is_file()

    script = "import cafenet; print(cafenet.__file__); print(cafenet.__version__)"
    imported_from, found_version = run(sys.executable, "-c", script, cwd=tmp_path, PYTHONPATH=str(target)).splitlines()
    assert Path(imported_from) == target / "cafenet" / "__init__.py"
    assert found_version == version("cafenet")

    # The command starts in a fresh environment, before anything that it needs for its work is installed.
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(fresh), cwd=tmp_path)
    bin_of_it = fresh / "bin"
    pip = (sys.executable, "-m", "pip", "--python", str(bin_of_it / "python"), "install", "--no-deps", str(wheel))
    run(*pip, cwd=tmp_path, PYTHONPATH="")
    said = run(str(bin_of_it / "cafenet"), "--version", cwd=tmp_path, PYTHONPATH="")
    assert said == f"cafenet {version('cafenet')}\n"


IMPORTS = {
    "vision": "torchvision",
    "detection": "pycocotools",
    "timm": "timm",
    "transformers": "transformers",
    "lightning": "cafenet.integrations.lightning",
    "accelerate": "accelerate",
    "transformers,accelerate": "cafenet.integrations.trainer",
    "board": "torch.utils.tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "dashboard": "optuna_dashboard",
    "onnx": "onnxruntime",
    "postgresql": "psycopg2",
    "notebooks": "nbclient",
}
"""What each extra is for. Left out: those for developers, and those that may ask for another torch."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> tuple[Path, Path]:
    """A wheel, and an environment that has it and sees what this one has, so that torch is not downloaded again."""
    place = tmp_path_factory.mktemp("installed")
    source, python = place / "source", place / "venv" / "bin" / "python"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), cwd=source)
    run(sys.executable, "-m", "venv", str(place / "venv"), cwd=place)
    packages = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = place.glob("*.whl")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))
    run(str(python), *install, cwd=place, PYTHONPATH="")
    return wheel, python


@pytest.mark.slow
@pytest.mark.parametrize("extra", IMPORTS)
def test_the_wheel_installs_with_an_extra_and_keeps_torch(installed, extra: str, tmp_path: Path):
    wheel, python = installed
    pins = ("-c", str(ROOT / "constraints.txt")) if sys.version_info[:2] == (3, 11) else ()
    said = run(str(python), "-m", "pip", "install", *pins, f"{wheel}[{extra}]", cwd=tmp_path, PYTHONPATH="")
    assert "Requirement already satisfied: torch" in said
    script = f"import cafenet, torch, {IMPORTS[extra]}; print(cafenet.__file__); print(torch.__version__)"
    *_, place, found = run(str(python), "-c", script, cwd=tmp_path, PYTHONPATH="").split()
    assert Path(place).is_relative_to(python.parents[1])
    assert found == torch.__version__


def test_every_extra_is_tested_or_left_out_by_name():
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) - set(IMPORTS) == {"openvino", "executorch", "peers", "docs", "dev"}
