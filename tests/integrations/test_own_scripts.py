"""What a training script needs to become that of a supernet: at most ten lines, counted in the examples of the docs."""

import os
import re
import subprocess
import sys
from difflib import ndiff
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "lightning.md").read_text()
SCRIPTS = Path(__file__).with_name("own_scripts")
KINDS = {"lightning": "Lightning", "accelerate": "Accelerate", "trainer": "Trainer of transformers"}
EXAMPLES = dict(zip(KINDS, re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL), strict=True))


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("kind", KINDS)
def test_at_most_ten_lines_are_added_or_changed(kind):
    own = lines((SCRIPTS / f"own_{kind}.py").read_text())
    added = [line for line in ndiff(own, lines(EXAMPLES[kind])) if line.startswith("+ ")]
    assert any("cafenet" in line for line in added)
    assert len(added) <= 10
    (said,) = re.findall(rf"^\| {KINDS[kind]} \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert len(added) == int(said), "".join(f"\n{line}" for line in added)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_script_without_cafenet_runs(kind, tmp_path, monkeypatch):
    """What is counted against is a script that trains; its network and data are those of the tutorial, cut short."""
    pytest.importorskip("lightning" if kind == "lightning" else "accelerate")
    tutorial = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    for name in ("net.py", "mydata.py"):
        (text,) = re.findall(rf'```python title="{name}"\n(.*?)```', tutorial, flags=re.DOTALL)
        (tmp_path / name).write_text(text.replace("(data.train)", "(data.train.subset(range(200)))"))
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    # cafenet first, for a torchvision of another build than torch, which both libraries import
    script = "import sys, runpy, cafenet; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", script, str(SCRIPTS / f"own_{kind}.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
