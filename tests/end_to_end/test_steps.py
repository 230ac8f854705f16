"""Each step stops where its name says, and the next one goes on from there."""

import json
import shutil
from pathlib import Path

import pytest
from torch import nn

from cafenet.cli.main import main
from cafenet.errors import RecipeError, RunFileError
from cafenet.pipeline.entries import Entry, read_entries, write_entries
from cafenet.report.run_records import read_run
from cafenet.runs import final_models as finals
from cafenet.runs import run_recipe as steps
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.workload import Workload
from cafenet.scoring.scorer import Scorer
from cafenet.searching import width_search as widths
from cafenet.searching.latency import estimate as latency_model
from cafenet.searching.latency.measure import Latency
from cafenet.supernet import trainer
from tests.helpers.tiny_run import contents, num_steps, run
from tests.helpers.tiny_run import without_latency as timeless


def test_both_supernets_begin_with_one_full_network(recipe, tmp_path, monkeypatch):
    plain, steps = trainer.Trainer._train_step, []

    def counted(self, batches):
        steps.append(str(self.directory.relative_to(tmp_path / "run")))
        return plain(self, batches)

    monkeypatch.setattr(trainer.Trainer, "_train_step", counted)
    run(recipe, tmp_path / "run", "--sampling.full_share=0.5", step="train")
    assert steps == ["supernet/full"] * 2 + ["supernet"] * 2 + ["supernet-fixed"] * 2
    assert (tmp_path / "run" / "supernet-fixed" / "full" / "model.pt").exists()
    assert [study.name for study in read_run(tmp_path / "run").studies] == ["supernet", "supernet-fixed"]


@pytest.fixture
def never(monkeypatch):
    """Makes a part of the work impossible from now on."""

    def forbidden(*arguments, **options):
        raise AssertionError("this step is not asked for, or was done before")

    return lambda place, name: monkeypatch.setattr(place, name, forbidden)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


NAMES = ("supernet.pt", "supernet.previous.pt", "log.jsonl")


def test_step_by_step_equals_all_at_once(finished, recipe, tmp_path, never, monkeypatch):
    directory = tmp_path / "run"
    with monkeypatch.context() as limited:
        limited.setattr(Scorer, "__init__", None)
        limited.setattr(finals, "train_model", None)
        assert run(recipe, directory, step="train") == {}
    assert {name for name in files(directory) if "/" in name} == {
        f"{place}/{name}" for place in ("supernet", "supernet-fixed") for name in NAMES
    }
    assert not files(directory) & {"entries.json", "results.json"}
    trained = contents(directory, "*.pt")
    with monkeypatch.context() as limited:
        limited.setattr(trainer.Trainer, "_train_step", None)
        limited.setattr(finals, "train_model", None)
        assert run(recipe, directory, step="search") == {}
    assert contents(directory, "*.pt") == trained
    assert [entry.method for entry in read_entries(directory)] == ["Original", "Uniform", "Fixed sharing", "CafeNet-E"]
    assert not (directory / "models").exists()
    found = contents(directory, "*.pt", "*.journal", "result-*.json")
    with monkeypatch.context() as limited:
        limited.setattr(Scorer, "score", None)
        assert run(recipe, directory, step="finetune") == {}
    assert len(list(directory.glob("models/*/seed-0/slim.pt"))) == 4
    assert found.items() <= contents(directory, "*.pt", "*.journal", "result-*.json").items()
    assert not (directory / "results.json").exists()
    assert json.loads((directory / "manifest.json").read_text())["finished"] is None
    never(trainer.Trainer, "_train_step")
    never(Scorer, "score")
    results = run(recipe, directory, step="evaluate")
    assert timeless(results) == timeless(json.loads((finished / "results.json").read_text()))
    assert json.loads((directory / "manifest.json").read_text())["finished"] is not None


def test_a_step_says_where_things_lie_but_shows_no_table(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["train", str(recipe), "--output", str(tmp_path / "run"), "--quiet"]) == 0
    output = capsys.readouterr().out
    assert str(tmp_path / "run") in output
    assert "accuracy" not in output


def test_an_interrupted_final_training_continues(finished, recipe, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the third step of the second final model: its checkpoint has two steps, the first model is done."""
    plain, steps = trainer.Trainer._train_step, []

    def interrupted(self, batches):
        steps.append(self.checkpoint.parent.parent.name)
        if steps.count("50pct-uniform") == 3:
            raise KeyboardInterrupt
        return plain(self, batches)

    monkeypatch.setattr(trainer.Trainer, "_train_step", interrupted)
    directory = tmp_path / "run"
    assert main(["run", str(recipe), "--output", str(directory), "--quiet"]) == 130
    assert capsys.readouterr().err == "stopped: what is done is kept; the same command continues\n"
    done = contents(directory / "models" / "original", "*")
    assert not (directory / "models" / "50pct-uniform" / "seed-0" / "slim.pt").exists()
    monkeypatch.setattr(trainer.Trainer, "_train_step", plain)
    results = run(recipe, directory)
    assert contents(directory / "models" / "original", "*") == done
    assert num_steps(directory / "models" / "50pct-uniform" / "seed-0") == 4
    assert timeless(results) == timeless(json.loads((finished / "results.json").read_text()))


def test_a_model_without_its_evaluation_is_not_trained_again(finished, tmp_path, never):
    """Killed between the two: the checkpoint is complete, so only the evaluation is done."""
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    place = directory / "models" / "50pct-cafenet-e" / "seed-0"
    before = (place / "evaluation.json").read_text()
    (place / "evaluation.json").unlink()
    (place / "slim.pt").unlink()
    never(trainer.Trainer, "_train_step")
    run(finished.parent / "tiny.yaml", directory)
    assert (place / "evaluation.json").read_text() == before
    assert (place / "slim.pt").exists()


def test_entries_are_read_as_they_were_written(tmp_path):
    entries = [
        Entry("Original", "", None),
        Entry("CafeNet-E", "50%", {"a": [0, 2]}, 0.5, tmp_path / "supernet"),
    ]
    write_entries(entries, {"a": 3}, tmp_path)
    assert read_entries(tmp_path) == entries


def test_no_entries(tmp_path):
    with pytest.raises(RecipeError, match=r"must hold a finished search, but has no entries.json"):
        read_entries(tmp_path)


@pytest.mark.parametrize(
    ("method", "budget", "key"),
    [
        ("CafeNet-E", "50%", "50pct-cafenet-e"),
        ("Original", "", "original"),
        ("Fixed sharing", "1.5M params+12ms", "1.5m-params-12ms-fixed-sharing"),
    ],
)
def test_directories_of_entries(method, budget, key):
    assert Entry(method, budget, None).key == key


def test_verbose_says_what_a_run_begins_with(recipe, tmp_path, capsys):
    flags = ["--baselines.fixed", "false", "--output", str(tmp_path / "run")]
    assert main(["train", str(recipe), *flags, "--verbose"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "2 width groups, 11,424 FLOPs" in told
    assert "fashion: 130 training, 20 validation, 2000 test examples" in told
    assert main(["train", str(recipe), *flags, "--quiet"]) == 0
    assert "width groups" not in capsys.readouterr().err


@pytest.fixture
def slowness(monkeypatch):
    """Of the second layer; a channel of the first takes a millisecond."""
    slowness = [1.0]

    def measured(model, *_):
        one, two = (each.out_channels for each in model.modules() if isinstance(each, nn.Conv2d))
        return one + slowness[0] * two

    for module in (latency_model, widths):
        monkeypatch.setattr(module, "measure_latency", measured)
    monkeypatch.setattr(steps, "measure_latencies", lambda models, *_: [Latency(*[measured(m)] * 3) for m in models])
    return slowness


WITHIN_LATENCY = ["--budget=14ms", "--baselines.fixed=false", "--baselines.original=false"]


@pytest.mark.parametrize("budget", ["14ms", "70% latency"])
def test_a_run_within_a_latency_goes_on_with_what_it_measured_first(budget, slowness, recipe, tmp_path, monkeypatch):
    """Measured anew at the second start, the budget or the baselines would be others."""
    output, flags = tmp_path / "run", [*WITHIN_LATENCY, f"--budget={budget}"]
    flags += ["--baselines.random_widths=2", "--baselines.random_epochs=1"]
    with monkeypatch.context() as patch:
        patch.setattr(finals, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(recipe, output, *flags)
    first = read_entries(output)
    assert [entry.method for entry in first] == ["Uniform", "Random", "CafeNet-E"]
    slowness[0] = 1.5
    results = run(recipe, output, *flags)
    assert read_entries(output) == first
    for each, entry in zip(results["rows"], first, strict=True):
        assert each["widths"] == {name: len(channels) for name, channels in entry.channels.items()}
        assert sum(each["widths"].values()) <= 14
    limits = [Workload(load_recipe(str(recipe), flags), output).budgets[0].caps[0].limit for _ in range(2)]
    assert limits == [14.0, 14.0]


def interrupted(*_):
    raise KeyboardInterrupt


def test_models_of_other_widths_are_not_taken(slowness, recipe, tmp_path):
    """Without its measurements, a finished run finds other baselines than those that it has trained."""
    output = tmp_path / "run"
    run(recipe, output, *WITHIN_LATENCY)
    before = contents(output / "models", "*")
    (output / "latency.json").unlink(missing_ok=True)
    slowness[0] = 1.5
    with pytest.raises(RunFileError, match=r"models/.* must hold the training of this model, but .*channels.*remove"):
        run(recipe, output, *WITHIN_LATENCY)
    assert contents(output / "models", "*") == before


def test_a_refused_start_changes_no_measurements(slowness, recipe, tmp_path):
    output = tmp_path / "run"
    run(recipe, output, *WITHIN_LATENCY, step="train")
    kept = contents(output, "latency.json")
    assert kept
    with pytest.raises(RecipeError, match="holds a run of another recipe"):
        run(recipe, output, *WITHIN_LATENCY, "--latency.batch_size=2", step="train")
    assert contents(output, "latency.json") == kept
