"""`cafenet inspect` shows what tracing found, and a mistake ends in one sentence."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import cafenet
from cafenet.cli.main import main
from cafenet.cli.table import print_inspection
from cafenet.space.bins import Bins, GroupBins
from cafenet.space.summary import Inspection

# On an 8x8 image: 8 filters of 3*3*3 weights at 64 places, then 8*10 weights: 8*27*64 + 80 = 13,904 FLOPs, and
# 8*27 + 80 = 296 parameters. One of the 8 channels causes 27*64 + 10 = 1,738 FLOPs.
NET_FILE = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10, bias=False),
    )

def build_two():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "net.py").write_text(NET_FILE)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds the working directory
    monkeypatch.setenv("COLUMNS", "100")
    return f"{tmp_path}/net.py:build"


def inspect_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["inspect", "--json", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_outputs_that_matter(tmp_path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "two.py").write_text(
        "from torch import nn\n"
        "class Two(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 5, 1)\n"
        "    def forward(self, x):\n"
        "        x = self.a(x)\n"
        "        return {'scores': self.c(self.b(x)), 'features': x}\n"
    )
    names = [
        [group["name"] for group in inspect_json(capsys, f"{tmp_path}/two.py:Two", "--input", "3,8,8", *more)["groups"]]
        for more in ((), ("--outputs", "scores"))
    ]
    assert names == [["b"], ["a", "b"]]
    assert main(["inspect", f"{tmp_path}/two.py:Two", "--input", "3,8,8", "--outputs", "score"]) == 2
    assert "did you mean scores?" in capsys.readouterr().err


def test_json_document(net: str, capsys: pytest.CaptureFixture[str]):
    document = inspect_json(capsys, net, "--input", "3,8,8")
    assert document["model"] == net
    assert document["input"] == [3, 8, 8]
    assert document["flops"] == 13_904
    assert document["params"] == 296
    assert document["searchable_flops_share"] == 1.0
    (group,) = document["groups"]
    assert group == {
        "name": "0",
        "channels": 8,
        "divisor": 1,
        "min_width": 1,
        "sensitivity": 1738,
        "flops_share": 1.0,
        "bin_size": 1,
        "num_bins": 8,
    }
    assert (document["beta"], document["search_space_size"]) == (1.0, 8)
    (frozen,) = document["frozen"]
    assert frozen == {"name": "4", "channels": 10, "reason": "is an output of the model"}
    assert document["seconds"] > 0
    assert document["versions"]["cafenet"] == cafenet.__version__
    assert document["versions"]["torch"] == torch.__version__


def test_tables(net: str, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", net, "--input", "3,8,8"]) == 0
    output = capsys.readouterr().out
    (row,) = [line for line in output.splitlines() if "1,738" in line]
    assert row.split() == ["0", "8", "100.0%", "1,738", "1", "8"]
    assert "13,904 (1 multiply-add = 1 FLOP, as in the paper)" in output
    assert "parameters  296" in output
    assert "100.0% of the FLOPs; width groups: 1" in output
    (row,) = [line for line in output.splitlines() if "is an output of the model" in line]
    assert row.split()[:2] == ["4", "10"]


def test_input_defaults_to_the_published_size(net: str, capsys: pytest.CaptureFixture[str]):
    assert inspect_json(capsys, net)["input"] == [3, 224, 224]


@pytest.mark.parametrize(("given", "channels"), [("4", 4), ("0.25", 2)])
def test_min_width_in_channels_or_as_a_share(net: str, capsys: pytest.CaptureFixture[str], given: str, channels: int):
    (group,) = inspect_json(capsys, net, "--input", "3,8,8", "--min-width", given)["groups"]
    assert group["min_width"] == channels


def test_frozen_by_pattern(net: str, capsys: pytest.CaptureFixture[str]):
    document = inspect_json(capsys, net.replace(":build", ":build_two"), "--input", "3,8,8", "--freeze", "0")
    assert [group["name"] for group in document["groups"]] == ["1"]
    assert {"name": "0", "channels": 8, "reason": "is frozen by '0'"} in document["frozen"]


def test_beta_and_divisor_set_the_bins(net: str, capsys: pytest.CaptureFixture[str]):
    (group,) = inspect_json(capsys, net, "--input", "3,8,8", "--beta", "3")["groups"]
    assert (group["bin_size"], group["num_bins"]) == (3, 2)  # floor(8 / 3) = 2 bins, of 5 and 3 channels
    (group,) = inspect_json(capsys, net, "--input", "3,8,8", "--divisor", "4")["groups"]
    assert (group["bin_size"], group["num_bins"]) == (4, 2)


def test_coarse_groups_show_their_divisor(net: str, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", net, "--input", "3,8,8", "--min-width", "4"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "1,738" in line]
    assert row.split() == ["0", "8", "4", "100.0%", "1,738", "1", "5"]  # min width 4: bins of 4, 1, 1, 1, 1


def test_no_verify(net: str, capsys: pytest.CaptureFixture[str]):
    assert inspect_json(capsys, net, "--input", "3,8,8")["verified"] is True
    assert inspect_json(capsys, net, "--input", "3,8,8", "--no-verify")["verified"] is False


def test_names_and_reasons_are_not_read_as_markup():
    space = SimpleNamespace(
        groups=[SimpleNamespace(name="a[bold]", channels=8, divisor=1, min_width=1, sensitivity=5.0)],
        frozen=[SimpleNamespace(name="b[red]", channels=64, reason="no rule for [op]")],
        flops=lambda: 5,
        params=lambda: 7,
        searchable_flops_share=0.0,
        flops_share=lambda name: 1.0,
    )
    output = StringIO()
    bins = Bins((GroupBins("a[bold]", 8, 1, 1),))
    print_inspection(Inspection("net", (3, 8, 8), space, bins, 1.0, True, 0.1), Console(file=output, width=80))
    for text in ("a[bold]", "b[red]", "no rule for [op]"):
        assert text in output.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["torchvision:mobilenetv2"], "did you mean torchvision:mobilenet_v2"),
        (["absent.py:build"], "there is no absent.py"),
        (["{net}", "--input", "1,8,8"], "to have 3 channels"),
        (["{net}", "--input", "3,8,8", "--freeze", "0"], "every layer is frozen"),
        (["{net}", "--input", "3,8,8", "--min-width", "0"], "min_width"),
        (["{net}", "--input", "3,8,8", "--freeze", "absent*"], "absent*"),
        (["{net}", "--input", "3,8,8", "--beta", "0"], "beta must be a number above 0"),
    ],
)
def test_mistake_ends_in_one_message(net: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    assert main(["inspect", *(argument.format(net=net) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_bug_shows_its_traceback(net: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cafenet.tracing.tracer.trace", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["inspect", net])


@pytest.mark.parametrize("size", ["3x224", "3,0,8", "", "3,-8,8", "3,,8"])
def test_input_size_that_is_none(net: str, capsys: pytest.CaptureFixture[str], size: str):
    with pytest.raises(SystemExit) as exit_info:
        main(["inspect", net, f"--input={size}"])
    assert exit_info.value.code == 2
    assert f"must be positive whole numbers, as in 3,224,224, but got {size!r}" in capsys.readouterr().err


def test_help_shows_examples_and_words(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_info:
        main(["inspect", "--help"])
    assert exit_info.value.code == 0
    output = capsys.readouterr().out
    assert "cafenet inspect torchvision:mobilenet_v2" in output
    assert "width group" in output


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"cafenet {cafenet.__version__}\n"


def test_module_in_the_working_directory(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "net.py").rename(tmp_path / "net_in_working_directory.py")
    monkeypatch.chdir(tmp_path)
    assert inspect_json(capsys, "net_in_working_directory:build", "--input", "3,8,8")["flops"] == 13_904


def test_package_runs_as_a_module(net: str):
    command = [sys.executable, "-m", "cafenet", "inspect", net, "--input", "3,8,8", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert json.loads(result.stdout)["flops"] == 13_904


def test_a_reader_that_has_gone(net: str):
    command = [sys.executable, "-m", "cafenet", "recipes", "show", "demo"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "demo", "--output", "PATH"],
        ["train", "demo", "--output", "PATH"],
        ["detect", "bccd-faster-rcnn", "--output", "PATH"],
        ["report", "PATH"],
        ["report", ".", "--figures", "PATH"],
        ["compare", "a", "PATH"],
        ["compare", "a", "b", "--output", "PATH"],
        ["export", "PATH", "x.pt"],
        ["export", "run", "PATH"],
        ["dashboard", "PATH"],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_directory(arguments, empty, tmp_path, monkeypatch, capsys):
    """As `--output "$RUN"` with a variable that is not set."""
    monkeypatch.chdir(tmp_path)
    assert main([empty if each == "PATH" else each for each in arguments]) == 2
    assert capsys.readouterr().err == (
        f"error: a path must name a file or directory, but got {empty!r}; write . for the current directory\n"
    )
    assert list(tmp_path.iterdir()) == []
