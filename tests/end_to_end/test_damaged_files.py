"""Damaged, missing and foreign files of a run directory: each is named, and nothing of another run is taken."""

import json
import logging
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cafenet.cli.main import main
from cafenet.common.seals import sealed
from cafenet.report.run_records import read_run
from cafenet.report.trials import read_study
from cafenet.scoring.scorer import Scorer
from cafenet.supernet import trainer
from tests.helpers.tiny_run import contents, recipe_file, refused, run
from tests.helpers.tiny_run import without_latency as timeless

DAMAGES = {
    "truncated": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "braces": lambda whole: b"{}",
    "list": lambda whole: b"[]",
    "null": lambda whole: b"null",
    "binary": lambda whole: bytes(range(256)) * 4,
    "nested": lambda whole: b"[" * 100_000,
    "missing": None,
}
OURS = "models/50pct-cafenet-e/seed-0"


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def never(monkeypatch):
    """What is finished is not done again."""

    def done_before(*arguments, **options):
        raise AssertionError("this was done before")

    monkeypatch.setattr(trainer.Trainer, "_train_step", done_before)
    monkeypatch.setattr(Scorer, "score", done_before)


def damage(path: Path, kind: str) -> None:
    change = DAMAGES[kind]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def again(finished: Path, directory: Path) -> None:
    run(finished.parent / "tiny.yaml", directory)


PLAIN = ("manifest.json", "space.json", "entries.json", "results.json", f"{OURS}/evaluation.json")
LOGS = ("supernet/log.jsonl", "supernet/trials.journal", f"{OURS}/log.jsonl")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_goes_on_and_ends_the_same(kind, finished, copied, never):
    """All that can be made again is, whichever files are damaged."""
    for name in PLAIN:
        damage(copied / name, kind)
    expected = json.loads((finished / "results.json").read_text())
    assert timeless(run(finished.parent / "tiny.yaml", copied)) == timeless(expected)
    for name in PLAIN:
        written, before = (json.loads((place / name).read_text()) for place in (copied, finished))
        assert written == before if name not in ("manifest.json", "results.json") else written.keys() == before.keys()


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "missing"])
def test_a_damaged_recipe_is_named(kind, finished, copied, capsys):
    """It says what the directory belongs to, so nothing else may decide that."""
    damage(copied / "recipe.yaml", kind)
    before = contents(copied, "*")
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", copied)
    assert f"{copied / 'recipe.yaml'} must hold the recipe of a run, but " in line
    assert line.endswith("put this run's own recipe in its place, or use another directory")
    assert contents(copied, "*") == before


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_report_shows_what_is_left(kind, copied, capsys):
    (copied / "report.html").unlink()
    for name in (*PLAIN, *LOGS):
        damage(copied / name, kind)
    before = contents(copied, "*.json*", "*.yaml", "*.journal")
    assert main(["report", str(copied)]) == 0
    assert "Reproduce it" in (copied / "report.html").read_text()
    warnings = capsys.readouterr().err
    for name in PLAIN[:-1]:
        is_fine = kind == "missing" and name in ("entries.json", "results.json")  # as before the search has ended
        assert (f"warning: {copied / name} must hold " in warnings) is not is_fine
    assert contents(copied, "*.json*", "*.yaml", "*.journal") == before


@pytest.mark.parametrize("name", PLAIN[:-1])
def test_a_report_of_a_finished_run_names_a_missing_file(name, copied, capsys):
    (copied / name).unlink()
    (problem,) = read_run(copied).problems
    assert problem.startswith(f"{copied / name} must hold ")
    assert problem.endswith(", but is not there; the same command writes it anew")
    assert main(["report", str(copied)]) == 0
    assert capsys.readouterr().err == f"warning: {problem}\n"
    page = (copied / "report.html").read_text()
    assert f"Damaged: {problem}." in page
    assert ("this run took " in page) is (name != "manifest.json")
    assert "Not there yet" not in page


def test_a_recipe_that_is_still_yaml_but_not_the_runs_is_named(finished, copied, capsys):
    whole = (copied / "recipe.yaml").read_text()
    places = [number for number, letter in enumerate(whole) if letter == "\n" and whole[number + 1 :][:1] != " "]
    for text in (whole[: places[len(places) // 2]], whole.replace("iterations", "iteratioos", 1)):
        (copied / "recipe.yaml").write_text(text)
        (problem,) = read_run(copied).problems
        assert problem.startswith(f"{copied / 'recipe.yaml'} must hold the recipe that the run was started with, but ")
        assert main(["compare", str(copied), str(finished), "--output", str(copied / "page.html")]) == 0
        assert "must hold the recipe that the run was started with" in " ".join(capsys.readouterr().out.split())
        assert "must hold the recipe that the run was started with" in (copied / "page.html").read_text()
    (copied / "recipe.yaml").write_text("# of mine\n" + whole)
    assert read_run(copied).problems == ()


@pytest.mark.parametrize(("kept", "told"), [(2.5, "but line 3 is damaged;"), (0, "but has none;")])
def test_a_log_with_damaged_or_missing_lines_is_named(kept, told, copied):
    path = copied / "supernet" / "log.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: int(kept)]) + lines[2][: int(kept % 1 * 20)])
    (problem,) = read_run(copied).problems
    assert problem.startswith(f"{path} must hold the loss of each logged step, {told}")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_report_without_its_recipe(kind, copied):
    damage(copied / "recipe.yaml", kind)
    found = read_run(copied)
    assert found.results is not None
    (problem,) = found.problems
    assert problem.startswith(f"{copied / 'recipe.yaml'} ")


def test_rows_of_a_wrong_shape_are_no_rows(copied, capsys):
    (copied / "results.json").write_text(json.dumps({"rows": [{"method": "CafeNet-E"}]}))
    assert main(["report", str(copied)]) == 0
    assert "rows[0] has no budget, flops, params" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["truncated", "empty", "braces", "binary"])
def test_export_names_what_is_damaged(kind, copied, tmp_path, capsys):
    damage(copied / "entries.json", kind)
    line = refused(capsys, "export", copied, tmp_path / "x.pt")
    assert f"{copied / 'entries.json'} must hold what the methods of a run found, but " in line


def test_a_damaged_slim_file_says_what_to_do(finished, copied, capsys, never):
    path = copied / OURS / "slim.pt"
    before = path.read_bytes()
    path.write_bytes(b"half")
    (copied / OURS / "evaluation.json").unlink()
    again(finished, copied)  # written anew from the checkpoint
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["truncated", "binary", "empty"])
def test_a_log_that_is_damaged_does_not_stop_a_training(kind, finished, copied):
    for name in ("model.pt", "model.previous.pt", "slim.pt", "evaluation.json"):
        (copied / OURS / name).unlink()
    damage(copied / OURS / "log.jsonl", kind)
    expected = json.loads((finished / "results.json").read_text())
    assert timeless(run(finished.parent / "tiny.yaml", copied)) == timeless(expected)


def test_the_evaluation_of_another_model_is_not_taken(finished, copied, never, caplog):
    shutil.copy(copied / "models/original/seed-0/evaluation.json", copied / OURS / "evaluation.json")
    again(finished, copied)
    results, before = (json.loads((place / "results.json").read_text()) for place in (copied, finished))
    assert timeless(results) == timeless(before)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(f"{copied / OURS / 'evaluation.json'} belongs to another model or data (channels differs")


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 1), ("weights", "0"), ("test_data", "0"), ("train_data", "0"), ("loss", "bce"), (None, 0)],
)
def test_an_evaluation_of_anything_else_is_made_again(key, value, finished, copied, never, caplog):
    path = copied / OURS / "evaluation.json"
    whole = json.loads(path.read_text())
    before = {**whole, "accuracy": 0.99}
    if key is None:
        del before["identity"]  # a file of an earlier version
    else:
        before["identity"] = {**whole["identity"], key: value}
    path.write_text(json.dumps(sealed(before)))
    again(finished, copied)
    assert json.loads(path.read_text()) == whole
    assert f"{key} was" in caplog.text if key else "belongs to another model or data" in caplog.text


def test_a_training_of_something_else_is_refused(finished, copied, capsys):
    """A checkpoint of as many channels, but others: shapes alone do not tell them apart."""
    path = copied / OURS / "start.json"
    start = json.loads(path.read_text())
    path.write_text(json.dumps(sealed({**start, "train_data": "other"})))
    (copied / OURS / "evaluation.json").unlink()
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", copied, "--quiet")
    assert f"{copied / OURS} must hold the training of this model, but holds another one's (train_data was" in line
    assert line.endswith("remove that directory to train anew, or use another run directory")


def test_entries_of_another_run_are_not_exported(copied, capsys):
    path = copied / "entries.json"
    entries = json.loads(path.read_text())
    ours = next(entry for entry in entries["entries"] if entry["method"] == "CafeNet-E")
    ours["channels"] = {name: channels[1:] for name, channels in ours["channels"].items()}
    path.write_text(json.dumps(sealed(entries)))
    line = refused(capsys, "export", copied, copied / "slim.pt")
    assert f"{path} must hold what this run found, but the model in {copied / OURS} keeps other channels" in line
    assert not (copied / "slim.pt").exists()


def test_nothing_of_other_data_is_taken(tmp_path, capsys):
    """As many images of the same size under the same name: only their content tells them apart."""
    path = tmp_path / "data" / "train.npz"
    path.parent.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (160, 28, 28, 1), dtype=np.uint8)
    for name in ("train", "test"):
        np.savez(path.with_stem(name), images=images, labels=np.arange(160) % 10)
    recipe = recipe_file(tmp_path / "recipe", data={"source": f"npz:{path.parent}"})
    run(recipe, tmp_path / "run", step="train")
    run(recipe, tmp_path / "run", step="train")
    np.savez(path, images=255 - images, labels=np.arange(160) % 10)
    before = contents(tmp_path / "run", "*.pt", "*.jsonl")
    line = refused(capsys, "train", recipe, "--output", tmp_path / "run", "--quiet")
    assert f"{tmp_path / 'run'} must hold a run on the same training data, but they have changed since" in line
    assert contents(tmp_path / "run", "*.pt", "*.jsonl") == before


def test_a_directory_that_is_removed_while_it_is_used(recipe, tmp_path, monkeypatch, capsys):
    directory, step = tmp_path / "run", trainer.Trainer._train_step

    def removes(self, batches):
        shutil.rmtree(directory, ignore_errors=True)
        return step(self, batches)

    monkeypatch.setattr(trainer.Trainer, "_train_step", removes)
    line = refused(capsys, "run", recipe, "--output", directory, "--quiet")
    assert f"the directory {directory} must stay while it is used, but was removed or moved away" in line


def test_a_directory_that_is_removed_in_the_search(finished, tmp_path, monkeypatch, capsys):
    directory, score = Path(shutil.copytree(finished, tmp_path / "run")), Scorer.score
    (directory / "supernet" / "trials.journal").unlink()
    (directory / "supernet" / "result-evolution-50pct.json").unlink()

    def removes(self, *arguments, **options):
        shutil.rmtree(directory, ignore_errors=True)
        return score(self, *arguments, **options)

    monkeypatch.setattr(Scorer, "score", removes)
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", directory, "--quiet")
    assert f"the directory {directory} must stay while it is used, but was removed or moved away" in line


@pytest.mark.skipif(not Path("/dev/full").exists() or os.geteuid() != 0, reason="needs to mount")
def test_a_disk_without_room_is_called_so(recipe, tmp_path, capsys):
    """A file system of 64 KB: PyTorch's own words for it are `iostream error`."""
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {small} 2>/dev/null"):
        pytest.skip("may not mount")
    try:
        line = refused(capsys, "run", recipe, "--output", small / "run", "--quiet")
    finally:
        os.system(f"umount {small}")
    assert "No space left on device" in line
    assert "iostream" not in line


def with_another_digit(path: Path) -> None:
    """One digit of a number, which leaves the file as valid as it was: 0.5 becomes 9.5, channel 3 becomes 9."""
    before = path.read_bytes()
    start = before.find(b'"seconds": ')  # in a manifest, the first number is the format
    after = before[: max(start, 0)] + re.sub(rb"(?<=[: \n])[0-8](?=[\d.,\s])", b"9", before[max(start, 0) :], count=1)
    assert after != before
    path.write_bytes(after)


@pytest.mark.parametrize("name", PLAIN[:-1])
def test_one_changed_digit_is_told_and_not_shown(name, copied, capsys):
    with_another_digit(copied / name)
    (problem,) = read_run(copied).problems
    assert problem.startswith(f"{copied / name} must hold ")
    assert "but was changed or damaged since it was written" in problem


def test_one_changed_digit_of_an_evaluation_is_not_believed(finished, copied, never, caplog):
    path = copied / OURS / "evaluation.json"
    whole = path.read_text()
    with_another_digit(path)
    again(finished, copied)
    assert path.read_text() == whole
    assert "but was changed or damaged since it was written" in caplog.text


def test_one_changed_digit_of_a_journal_loses_its_line_alone(finished, copied):
    """The score of a trial: it is still a number, and nothing but the digest of its line tells that it is another."""
    path = copied / "supernet" / "trials.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    number = max(number for number, line in enumerate(lines) if b'"value":0.' in line)  # a final score, which is needed
    lines[number] = lines[number].replace(b'"value":0.', b'"value":1.', 1)
    path.write_bytes(b"".join(lines))
    before = len(read_study(finished / "supernet" / "trials.journal")[0])
    assert len(read_study(path)[0]) == before - 1
    (problem,) = read_run(copied).problems
    assert problem.startswith(f"{path} must hold all scored widths, but 1 of its lines are damaged; ")
    (copied / "supernet" / "result-evolution-50pct.json").unlink()
    again(finished, copied)
    assert (copied / "results.json").exists()
    assert len(read_study(path)[0]) == before, "the width was scored again"


def test_entries_of_another_model_are_told(copied):
    path = copied / "entries.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(sealed({**content, "groups": {**content["groups"], "other": 4}})))
    (problem,) = read_run(copied).problems
    assert f"{path} must hold what the methods of a run found, but it is about other width groups" in problem


@pytest.mark.parametrize("kept", [[99], [-1], [0, 0], [True], [], "all"])
def test_channels_that_the_model_does_not_have_are_refused(kept, copied, capsys, tmp_path):
    path = copied / "entries.json"
    content = json.loads(path.read_text())
    ours = next(entry for entry in content["entries"] if entry["method"] == "CafeNet-E")
    name = next(iter(ours["channels"]))
    ours["channels"][name] = kept
    path.write_text(json.dumps(sealed(content)))
    line = refused(capsys, "export", copied, tmp_path / "x.pt")
    assert f"CafeNet-E 50% keeps channels of {name} that the model does not have" in line


def test_a_digest_whose_name_is_damaged_does_no_harm(finished, copied, never):
    """The values beside it are whole, and nothing else has a key of this name."""
    for name in PLAIN:
        path = copied / name
        before = path.read_bytes()
        path.write_bytes(before.replace(b'"digest"', b'"eigest"'))
        assert path.read_bytes() != before
    assert not read_run(copied).problems
    assert main(["report", str(copied)]) == 0
    again(finished, copied)
    assert (copied / "results.json").exists()


@pytest.mark.parametrize("name", ["log.jsonl", "slim.pt"])
@pytest.mark.parametrize("kind", ["truncated", "empty", "braces", "binary", "missing"])
def test_a_damaged_file_of_a_finished_model_is_told_in_its_report(kind, name, copied):
    """Its figure, or the size of its file, would be left out or wrong without a word."""
    damage(copied / OURS / name, kind)
    (problem,) = read_run(copied).problems
    assert problem.startswith(f"{copied / OURS / name} must hold the ")
