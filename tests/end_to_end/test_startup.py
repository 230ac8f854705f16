"""What starts quickly imports little: the package alone, and commands that only tell something."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cafenet
from cafenet.common import onednn

SLOW = {"jsonargparse", "matplotlib", "numpy", "optuna", "rich", "scipy", "timm", "torch", "torchvision"}


def imported(*arguments: str) -> set[str]:
    """The packages that Python imports with these arguments."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE)
    assert "cafenet" in names
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "recipes",
        "recipes show demo",
        "run --help",
        "inspect --help",
        "export --help",
        "completion bash",
    ],
)
def test_commands_that_only_tell_import_nothing_slow(arguments):
    assert not imported("-m", "cafenet", *arguments.split()) & SLOW


def test_the_package_alone_imports_nothing_slow():
    assert not imported("-c", "import cafenet; dir(cafenet); cafenet.__version__; cafenet.CafeNetError") & SLOW


def test_all_public_names_need_only_torch():
    found = imported("-c", "import cafenet; [getattr(cafenet, name) for name in cafenet.__all__]")
    assert found & SLOW == {"numpy", "torch"}


def test_every_public_name_is_there():
    names: dict[str, object] = {}
    exec("from cafenet import *", names)
    assert set(cafenet.__all__) == names.keys() - {"__builtins__"}
    assert set(cafenet.__all__) <= set(dir(cafenet))
    assert len(set(cafenet.__all__)) == len(cafenet.__all__)


def test_checkers_see_what_python_finds():
    """The imports that only checkers read and the table that Python reads name the same places."""
    (block,) = [
        node
        for node in ast.parse(Path(cafenet.__file__).read_text()).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    ]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: str(node.module).removeprefix("cafenet.") for node in imports for alias in node.names}
    assert seen == cafenet._MODULE_OF
    assert seen.keys() <= set(cafenet.__all__)


def test_packages_are_found_without_an_import_of_their_own():
    code = "import cafenet; print(cafenet.data.load_data.__module__, cafenet.searching.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "cafenet.data.load cafenet.searching\n"


@pytest.mark.parametrize("name", ["serach", "_private", "__main__"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'cafenet' has no attribute '{name}'"):
        getattr(cafenet, name)


def test_onednn_is_told_before_torch_is_imported():
    code = f"import os, sys, cafenet; print(os.environ[{onednn._VARIABLE!r}], 'torch' in sys.modules)"
    told = {onednn._VARIABLE, onednn._EARLIER_NAME}
    variables = {name: value for name, value in os.environ.items() if name not in told}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    assert done.stdout == f"{onednn.NUM_KEPT} False\n"
