"""The wheel holds the whole package: it is built, installed elsewhere and imported from there."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

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
