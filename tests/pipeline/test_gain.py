"""What a search gained: the numbers are those of the finished models, and are kept with their identity."""

import copy
import io
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TrainingError
from cafenet.pipeline.gain import Gain, Measured
from cafenet.pipeline.gain_text import sentence, shown_gain
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.trainer import Trainer
from tests.helpers.small_training import assert_same_state, built, config, data, traced

EXAMPLE = torch.zeros(1, 3, 4, 4)
TRAIN, VAL, TEST = data(64, 1), data(90, 2), data(70, 3)
OPTIONS = cafenet.SearchOptions(
    algorithm=cafenet.RandomSearch(samples=4), scoring=cafenet.ScoringConfig(calibration_size=32)
)
UNIFORM = "models/50pct-uniform/seed-0"


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return cafenet.train_model(built(), EXAMPLE, data(128, 1), config(epochs=2), quiet=True)


def searched(model: nn.Module, **given):
    given = {
        "train": config(),
        "finetune": config(),
        "options": OPTIONS,
        "test_data": TEST,
        "quiet": True,
        "trained": True,
        **given,
    }
    return cafenet.search(model, TRAIN, VAL, "50%", **given)


@pytest.fixture(scope="module")
def answer(trained, tmp_path_factory):
    return searched(trained, directory=tmp_path_factory.mktemp("gain"))


def test_every_number_of_a_model_is_its_own(trained, answer):
    for model, row in ((trained, answer.gain.before), (answer.model, answer.gain.after)):
        assert row.score == pytest.approx(cafenet.evaluate(model, VAL)["accuracy"])
        assert row.test_score == pytest.approx(cafenet.evaluate(model, TEST)["accuracy"])
        assert row.params == sum(parameter.numel() for parameter in model.parameters())
        assert row.flops == traced(model).flops()
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        assert row.file_bytes == len(buffer.getvalue())
        assert row.latency_ms > 0
    assert answer.gain.after.flops == answer.costs["flops"]
    assert (answer.gain.num_validation, answer.gain.num_test) == (90, 70)


def test_uniform_is_cut_from_the_same_model_and_trained_alike(trained, answer):
    """Made here by hand: the most important channels, statistics of its own, the slim model's training."""
    from cafenet.scoring.examples import hold_examples
    from cafenet.scoring.recalibration import recalibrate_model
    from cafenet.searching.budget import parse_budget
    from cafenet.searching.feasible import Feasible
    from cafenet.space.bins import flops_sensitive_bins

    space = traced(trained)
    costs = {"flops": space.flops, "params": space.params}
    within = Feasible(flops_sensitive_bins(space, 1.0), costs, parse_budget("50%", space))
    slim = space.extract(uniform_widths(space, within).tolist(), model=sort_by_importance(space, trained))
    recalibrate_model(slim, hold_examples(TRAIN, "training data", num_examples=32))
    slim = cafenet.train_model(slim, EXAMPLE, TRAIN, config(), quiet=True)
    row = answer.gain.baseline
    assert (row.flops, row.params) == (traced(slim).flops(), sum(each.numel() for each in slim.parameters()))
    assert row.score == pytest.approx(cafenet.evaluate(slim, VAL)["accuracy"])
    assert_same_state(answer.uniform, slim)
    kept = torch.load(answer.directory / UNIFORM / "model.pt", weights_only=True)["model"]
    assert all(torch.equal(kept[name], value) for name, value in slim.state_dict().items())


def answered_by(model: nn.Module) -> torch.utils.data.TensorDataset:
    """Noise, on which networks differ, with a model's own answers as labels."""
    images = torch.randn(200, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return torch.utils.data.TensorDataset(images, copy.deepcopy(model).eval()(images).argmax(1))


@pytest.fixture(scope="module")
def uniform_first(trained, tmp_path_factory):
    """A search whose validation data Uniform answers better: its labels are Uniform's own answers."""
    labelled = answered_by(searched(trained).uniform)
    directory = tmp_path_factory.mktemp("uniform-first")
    return cafenet.search(
        trained,
        TRAIN,
        labelled,
        "50%",
        train=config(),
        finetune=config(),
        options=OPTIONS,
        trained=True,
        quiet=True,
        directory=directory,
    )


def test_uniform_is_handed_back_where_the_validation_data_prefer_it(trained, uniform_first):
    result = uniform_first
    assert result.gain.baseline.score == 1.0 > result.gain.found.score
    assert result.is_uniform
    assert result.model is result.uniform
    assert result.searched is not result.model
    assert result.costs == {"flops": traced(result.model).flops(), "params": result.gain.baseline.params}
    assert dict(result.channels) != dict(result.found.channels)
    space = traced(trained)
    assert space.flops(dict(result.widths)) == result.costs["flops"] <= 0.5 * space.flops()
    assert {name: len(kept) for name, kept in result.channels.items()} == dict(result.widths)
    assert "50%: Uniform's widths" in str(result)
    assert [line.split()[0] for line in str(result).splitlines()[3:6]] == ["before", "widths", "after"]


def test_the_page_shows_uniform_where_it_is_handed_back(uniform_first):
    page = uniform_first.report().read_text()
    assert "Narrowing all layers alike is better at 50% than what the search found" in page
    assert "The slim model has Uniform&#x27;s widths here" in page
    assert '</span><span><i></i>original<i class="own"></i>Uniform 50%</span>' in page


def test_uniform_is_only_named_where_a_latency_is_capped(trained, uniform_first):
    """Its latency was never compared with the cap."""
    from cafenet.pipeline.gain import measure_gain
    from cafenet.pipeline.job import Job

    models = {"before": trained, "after": uniform_first.searched, "Uniform": uniform_first.uniform}
    labelled = answered_by(uniform_first.uniform)
    given = {"is_trained": True, "uniform": "alike", "test": None}
    job = Job(TRAIN, labelled, quiet=True)
    for is_allowed in (True, False):
        place = uniform_first.directory / f"compared-{is_allowed}"
        place.mkdir()
        gain = measure_gain(models, traced(trained), EXAMPLE, job, place=place, may_take_uniform=is_allowed, **given)
        assert gain.is_uniform_better
        assert gain.takes_uniform == is_allowed


def test_a_second_call_reads_the_same_comparison(trained, answer, monkeypatch):
    monkeypatch.setattr("cafenet.pipeline.gain.measure_latencies", None)  # nothing is measured again
    again = searched(trained, directory=answer.directory)
    assert again.gain == answer.gain
    assert str(again) == str(answer)


def test_other_data_are_measured_anew(trained, answer):
    other = searched(trained, directory=answer.directory, test_data=data(50, 9))
    assert other.gain.num_test == 50
    assert other.gain.after.test_score == pytest.approx(cafenet.evaluate(other.model, data(50, 9))["accuracy"])


def test_a_search_that_was_stopped_in_the_training_of_uniform_goes_on(trained, answer, tmp_path, monkeypatch):
    plain, steps = Trainer._train_step, []

    def stops(self, batches):
        if self.directory == tmp_path / UNIFORM:
            steps.append(1)
            if len(steps) == 3:
                raise KeyboardInterrupt
        return plain(self, batches)

    monkeypatch.setattr(Trainer, "_train_step", stops)
    with pytest.raises(KeyboardInterrupt):
        searched(trained, directory=tmp_path)
    monkeypatch.setattr(Trainer, "_train_step", plain)
    again = searched(trained, directory=tmp_path)
    assert_same_state(again.model, answer.model)
    assert again.gain.baseline.score == answer.gain.baseline.score
    assert again.gain.after.test_score == answer.gain.after.test_score


def test_the_baseline_can_be_left_out(trained, tmp_path):
    lean = searched(trained, baseline=False, test_data=None, directory=tmp_path)
    assert lean.gain.baseline is None
    assert lean.uniform is None
    assert not (tmp_path / UNIFORM).exists()
    assert "Narrowing" not in str(lean)
    (path,) = tmp_path.glob("models/*/seed-0/gain.json")
    assert [each["name"] for each in json.loads(path.read_text())["gain"]["models"]] == [
        "before",
        "after",
    ]


def test_a_baseline_without_training_is_refused(trained):
    with pytest.raises(TrainingError, match="baseline=True trains Uniform as the slim model is trained"):
        searched(trained, baseline=True, finetune=False)


def test_an_untrained_model_is_compared_with_uniform_trained_as_long_in_all(tmp_path):
    fresh = searched(built(), trained=False, train=config(epochs=2), finetune=None, directory=tmp_path)
    assert "trained for the 4 epochs of both trainings" in str(fresh)
    assert "The original came untrained" in str(fresh)
    lines = (tmp_path / UNIFORM / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 4 * 8


def gain(**options) -> Gain:
    rows = [
        Measured("before", 4_000_000, 1000, 2.0, 4000, 0.9, 0.88),
        Measured("after", 1_000_000, 300, 0.6, 1300, 0.89, 0.87),
        Measured("Uniform", 990_000, 290, 0.6, 1290, 0.88, 0.875),
    ]
    values = {"metric": "accuracy", "models": tuple(rows), "is_trained": True, "uniform": "with the same fine-tuning"}
    return Gain(**{**values, "num_validation": 500, "num_test": 1000, **options})


def test_the_sentence_says_what_is_better_and_what_is_worse():
    assert sentence(gain()) == (
        "The slim model needs 25% of the computation and 30% of the parameters of the original and reaches 87.00% "
        "accuracy on 1,000 test examples, where the original has 88.00% (-1.00 points). Narrowing all layers alike, "
        "with the same fine-tuning, reaches 87.50% (the slim model has -0.50 points)."
    )


def test_where_uniform_is_better_on_the_validation_data_the_first_sentence_says_what_to_do():
    """0.895 - 0.89 is half a point."""
    models = gain().models
    ahead = gain(models=(*models[:2], replace(models[2], score=0.895)), takes_uniform=True)
    assert ahead.is_uniform_better
    assert ahead.after == ahead.baseline
    assert sentence(ahead) == (
        "The slim model has Uniform's widths here: narrowing all layers alike, with the same fine-tuning, is 0.50 "
        'points better on the validation data. A longer search (effort="thorough") may turn that round. The slim '
        "model needs 25% of the computation and 29% of the parameters of the original and reaches 87.50% accuracy on "
        "1,000 test examples, where the original has 88.00% (-0.50 points). The widths found by the search, with the "
        "same fine-tuning, reach 87.00%."
    )
    assert [row.split()[0] for row in shown_gain(ahead).text().splitlines()[3:6]] == ["before", "widths", "after"]
    loss = gain(metric="negative_loss", models=(*models[:2], replace(models[2], score=0.895)))
    assert " it is better (0.895 beside 0.89) on the validation data. " in sentence(loss)
    assert sentence(loss).startswith("Consider the Uniform model (result.uniform), if its latency suits you: ")
    for other in (gain(models=models[:2]), gain()):  # the test data choose nothing, though Uniform is ahead there
        assert not other.is_uniform_better
        assert sentence(other).startswith("The slim model needs 25%")


def test_a_model_that_was_not_fine_tuned_is_said_to_be_none():
    shown = shown_gain(gain(is_finetuned=False, models=gain().models[:2])).text()
    assert shown.startswith("The slim model, which was not fine-tuned, needs 25% of the computation")
    assert "One training each" not in shown


def test_latencies_stand_with_their_quartiles(answer):
    low, high = answer.gain.after.latency_range_ms
    assert 0 < low <= answer.gain.after.latency_ms <= high
    models = [replace(each, latency_range_ms=(0.5, 0.75)) for each in gain().models]
    shown = shown_gain(gain(models=tuple(models))).text()
    assert "0.6 ms (0.5-0.75)" in shown
    assert "Latency: median (quartiles), all models in turns." in shown


def test_the_table_has_a_row_for_each_model():
    lines = shown_gain(gain()).text().splitlines()
    assert lines[1].split()[:6] == ["model", "FLOPs", "parameters", "latency", "file", "accuracy"]
    assert lines[3].split() == ["before", "4M", "1K", "2", "ms", "4KB", "90.00%", "88.00%"]
    assert lines[5].split() == ["Uniform", "990K", "290", "0.6", "ms", "1.29KB", "88.00%", "87.50%"]
