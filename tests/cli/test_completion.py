"""The tab key completes commands, flags, recipes and paths, in the shells that are there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cafenet.cli.main import main

ASK = """
source "$1"
cd "$2"
shift 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_cafenet 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def completed(tmp_path: Path, capsys):
    """What bash offers for the words of a line, the last of which is being typed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    place = tmp_path / "here"
    place.mkdir()
    (place / "mine.yaml").touch()
    (place / "net.pt").touch()
    (place / "runs").mkdir()
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def ask(*words: str) -> set[str]:
        command = [bash, "--norc", "-c", ASK, "bash", str(tmp_path / "script"), str(place), "cafenet", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    return ask


def test_bash_completes_commands_flags_and_choices(completed):
    assert completed("s") == {"slim", "search"}
    assert completed("slim", "--we") == {"--weights"}
    assert completed("slim", "--effort", "") == {"quick", "normal", "thorough"}
    assert completed("recipes", "") == {"show"}
    assert completed("completion", "") == {"bash", "zsh", "fish"}


def test_bash_completes_recipes_and_paths(completed):
    assert completed("run", "de") == {"demo"}
    assert completed("run", "m") == {"mine.yaml"}
    assert completed("recipes", "show", "cifar10-v") == {"cifar10-vgg", "cifar10-vgg-small"}
    assert completed("detect", "bccd-r") == {"bccd-retinanet"}
    assert completed("slim", "net.py:Net", "--weights", "n") == {"net.pt"}
    assert completed("report", "") == {"runs"}  # directories only


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_scripts_of_other_shells_can_be_read(tmp_path: Path, capsys, shell, check):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "cifar10-vgg-small" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, check, str(tmp_path / "script")], check=True)


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
    assert "'tcsh'" in capsys.readouterr().err
