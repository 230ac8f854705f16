"""The documentation can be followed: its code runs, its commands exist, and the site builds without a warning.

Pages are followed block by block: a block with a title becomes a file, `python FILE` runs it, other Python runs in one
namespace a page. Only the data and the lengths of trainings and searches are cut short.
"""

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cafenet
from cafenet.cli.main import main
from cafenet.data import DataSets, fashion_mnist
from cafenet.detection.recipe import load_detection_recipe
from cafenet.pipeline import checks, lengths, whole_search
from cafenet.runs.recipe_files import load_recipe
from cafenet.searching import width_search as widths
from cafenet.searching.latency import estimate as latency_model
from cafenet.searching.latency import measure as latency

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
NEEDS = {"lightning": ("lightning", "accelerate", "transformers")}
WITHOUT_PYTHON = ("many-hosts",)
RUNS = ("run", "train", "search", "finetune", "evaluate")

FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^(?P=indent)```',
    flags=re.DOTALL | re.MULTILINE,
)

CUTS = {
    r"time\.perf_counter": "time.process_time",  # load of other processes is not that of the model
    r"epochs=\d+": "epochs=0.5",
    r"epochs = \d+": "epochs = 1",
    r"samples=\d+": "samples=4",
    r"\b1200\b": "240",
    r"\b1000\b": "200",
    r"hold_out\(data\.train": "hold_out(data.train.subset(range(200))",
}


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(m["language"], m["title"], textwrap.dedent(m["text"])) for m in FENCE.finditer(page.read_text())]


def cut_short(text: str) -> str:
    for pattern, cut in CUTS.items():
        text = re.sub(pattern, cut, text)
    return text


def commands(block: Block) -> list[list[str]]:
    """The commands of a block for a shell, as words; a line that ends in a backslash goes on."""
    return [] if block.language else [shlex.split(line) for line in block.text.replace("\\\n", " ").splitlines()]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty working directory whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").parent == tmp_path:
            del sys.modules[name]


def write(block: Block) -> None:
    assert block.title is not None
    Path(block.title).write_text(cut_short(block.text))


def start(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`python FILE ARGUMENTS`, in this process; what torchrun would start several times is started once."""
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    monkeypatch.setattr(sys, "argv", words[script:])
    runpy.run_path(words[script], run_name="__main__")


def few(name: str) -> DataSets:
    """A few examples of the data that come with the package."""
    assert name == "fashion"
    data = fashion_mnist()
    return DataSets(data.train.subset(range(200)), data.test.subset(range(100)))


def test_the_tutorial_can_be_followed(place, monkeypatch, capsys):
    monkeypatch.setattr("cafenet.data.load_data", few)
    monkeypatch.setattr(lengths, "_LENGTHS", {"quick": (1, 8)})
    monkeypatch.setattr(lengths, "_FEWEST_STEPS", {"quick": 1})
    for block in blocks(TUTORIAL):
        if block.title:
            write(block)
        assert block.language != "python" or block.title, "the tutorial's code is in files"
        for words in commands(block):
            if words[0] == "python":
                start(words, monkeypatch)
            elif words[0] == "cafenet":
                assert main(words[1:]) == 0
    said = capsys.readouterr().out
    for line in ("5,532,544 FLOPs, 42,618 parameters", "1,919,872 FLOPs"):
        assert line in said
        assert line in TUTORIAL.read_text()
    for file in ("slim.pt", "slim.pt2", "runs/mine/report.html", "runs/slim/slim.pt", "runs/slim/report.html"):
        assert (place / file).is_file()
    slim = cafenet.load("slim.pt", sys.modules["net"].Net())
    assert cafenet.trace(slim, sys.modules["torch"].zeros(1, 1, 28, 28)).flops() <= 5_532_544 / 4


@pytest.fixture
def steady_clock(monkeypatch, request) -> None:
    """Latencies that follow from FLOPs, since those of a busy machine may meet no budget. The device answers itself."""
    if request.node.callspec.params["page"].stem == "own-device":
        return

    def estimated(model, example_inputs, settings, reference=None) -> float:
        return cafenet.trace(model, example_inputs, verify=False).flops() / 1e6

    for module in (whole_search, checks, latency, latency_model, widths):
        monkeypatch.setattr(module, "measure_latency", estimated)


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_python_blocks_of_how_to_pages_run(page, place, steady_clock, monkeypatch, capsys):
    for library in NEEDS.get(page.stem, ()):
        pytest.importorskip(library)
    for block in blocks(TUTORIAL):
        if block.title in ("net.py", "mydata.py"):
            write(block)
    names: dict[str, object] = {"__name__": "page"}
    found = blocks(page)
    assert any(block.language == "python" for block in found) == (page.stem not in WITHOUT_PYTHON)
    for block in found:
        if block.title:
            write(block)
        elif block.language == "python":
            exec(compile(cut_short(block.text), str(page), "exec"), names)
        for words in commands(block):
            if words[0] in ("python", "torchrun") and any(word.endswith(".py") for word in words):
                start(words, monkeypatch)


@pytest.mark.parametrize("page", [TUTORIAL, *HOW_TO], ids=lambda page: page.stem)
def test_recipes_take_the_flags_of_the_commands(page):
    for words in [each for block in blocks(page) for each in commands(block)]:
        if words[0] == "cafenet" and words[1] in RUNS:
            recipe, *flags = words[2:]
            for own in ("--output", "--storage"):  # the command's, not the recipe's
                place = flags.index(own) if own in flags else len(flags)
                del flags[place : place + 2]
            load_recipe(recipe, flags)
        if words[:2] == ["cafenet", "detect"] and "--output" in words:
            recipe, *flags = words[2:]
            output = flags.index("--output")
            load_detection_recipe(recipe, flags[:output] + flags[output + 2 :])


def test_the_commands_of_the_docs_exist(capsys):
    text = "\n".join(page.read_text() for page in DOCS.rglob("*.md"))
    found = set(re.findall(r"(?:^ *|`)cafenet (\w+)", text, flags=re.MULTILINE))
    assert {"run", "recipes", "export", "inspect", "report"} <= found
    for command in found:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0, command


def test_the_api_reference_has_every_public_name():
    entries = re.findall(r"^::: (cafenet\.[\w.]*?)\.(\w+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    assert len(set(entries)) == len(entries)
    assert {name for _, name in entries} >= set(cafenet.__all__)
    for module, name in entries:
        if not module.startswith("cafenet.integrations"):  # these need libraries that may be missing
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    assert len(cafenet.__all__) <= 30


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; run `make docs` once")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(HOW_TO)
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*(?:src|href)="?(?:https?:)?//[^>]*>', page.read_text())
        assert not loaded, page
