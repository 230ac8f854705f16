"""The page of a run says what the run's files say, finished or not."""

import json
import re
import shutil

import pytest
import torch
from torch import nn

import cafenet
from cafenet.cli.main import main
from cafenet.errors import RecipeError
from cafenet.report.figures import accuracy_against_flops, all_figures
from cafenet.report.figures import finished as distinct
from cafenet.report.run_page import report_html, write_report
from cafenet.report.run_records import StudyRecord, read_run, read_trials
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.results import count
from cafenet.runs.run_recipe import run_recipe
from cafenet.space.bins import uniform_bins
from cafenet.space.description import describe_space
from tests.helpers.pages import Page, made_up_run
from tests.helpers.tiny_run import note, recipe_file

FIGURES = ["widths", "accuracy-flops", "progress", "histogram", "training", "bins", "time"]


@pytest.fixture(scope="module")
def page(finished):
    return Page((finished / "report.html").read_text())


@pytest.fixture(scope="module")
def results(finished):
    return json.loads((finished / "results.json").read_text())


def test_a_run_ends_with_its_page(page):
    assert page.figures == [f"figure-{name}" for name in FIGURES]
    assert page.missing == []


def test_the_table_is_that_of_the_results(page, results):
    head, *rows = page.tables[0]
    assert head == ["method", "budget", "FLOPs", "params", "latency", "accuracy"]
    assert len(rows) == len(results["rows"]) == 4
    for shown, row in zip(rows, results["rows"], strict=True):
        first, second = (100 * value for value in row["accuracies"])
        assert shown[:2] == [row["method"], row["budget"] or "-"]
        assert shown[2:5] == [count(row["flops"]), count(row["params"]), f"{row['latency_ms']:.2f} ms"]
        assert float(shown[5].split(" ")[0]) == pytest.approx((first + second) / 2, abs=0.006)
        assert float(shown[5].split(" ")[2].rstrip("%")) == pytest.approx(abs(first - second) / 2**0.5, abs=0.006)


def test_the_widths_are_those_of_the_results(page, results):
    head, *rows = page.tables[1]
    slim = [row for row in results["rows"] if row["budget"]]
    assert head[2:] == [f"{row['method']} {row['budget']}" for row in slim]
    assert {row[0]: list(map(int, row[2:])) for row in rows} == {
        name: [row["widths"][name] for row in slim] for name in slim[0]["widths"]
    }


def test_the_verdict_gives_exact_costs(finished, results):
    (own,) = [row for row in results["rows"] if row["method"] == "CafeNet-E"]
    text = (finished / "report.html").read_text()
    verdict = text[text.index('<div class="verdict">') : text.index("</div>")]
    assert f"{own['flops']:,} FLOPs, {own['params']:,} parameters" in verdict
    assert "CafeNet-E - Uniform at 50%" in verdict
    assert "95% interval" in verdict


def test_the_dots_are_the_study(finished, page):
    trials = [trial for trial in distinct(read_trials(finished / "supernet" / "trials.journal")) if trial.is_complete]
    block = page.blocks["points-0"]
    assert block["groups"] == list(trials[0].widths)
    assert block["points"] == [
        [round(100 * trial.value, 4), int(trial.costs["flops"]), list(trial.widths.values())] for trial in trials
    ]
    source = (finished / "report.html").read_text()
    drawn = source[source.index('data-points="points-0"') :]
    assert drawn[: drawn.index("</g>\n   </g>")].count("<use ") == len(trials)


def test_the_bars_are_the_widths(finished, results):
    (own,) = [row for row in results["rows"] if row["method"] == "CafeNet-E"]
    text = (finished / "report.html").read_text()
    figure = text[text.index('id="figure-widths"') : text.index('id="figure-accuracy-flops"')]
    tips = re.findall(r'data-tip="([^":]*): (\d+) of (\d+) channels"', figure)
    assert {name.split(" ")[0]: int(kept) for name, kept, _ in tips} == own["widths"]


def test_nothing_comes_from_elsewhere(page):
    assert all(address.startswith("#") for address in page.addresses)


def test_what_users_write_is_escaped(finished):
    text = (finished / "report.html").read_text()
    assert "tiny &lt;b&gt;&amp; bold&lt;/b&gt;" in text
    assert "<b>& bold" not in text


@pytest.mark.parametrize(
    ("step", "told", "figures"),
    [
        (
            "train",
            ["no width has been scored", "search has not finished", "models"],
            ["training", "bins", "time"],
        ),
        ("search", ["models"], FIGURES),
    ],
)
def test_an_unfinished_run_says_what_is_missing(tmp_path, step, told, figures):
    run_recipe(load_recipe(str(recipe_file(tmp_path)), []), tmp_path / "run", until=step, quiet=True)
    page = Page(write_report(tmp_path / "run").read_text())
    assert [any(words in line for line in page.missing) for words in told] == [True] * len(told)
    assert len(page.missing) == len(told)
    assert page.figures == [f"figure-{name}" for name in figures]


def test_a_search_that_is_cut_off_shows_what_it_scored(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    for name in ("entries.json", "results.json"):
        (tmp_path / "run" / name).unlink()
    note(tmp_path / "run", finished=None)
    with (tmp_path / "run" / "supernet" / "trials.journal").open("a") as file:
        file.write('{"op_code": 5, "study')
    with (tmp_path / "run" / "supernet" / "log.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')
    page = Page(write_report(tmp_path / "run").read_text())
    assert "figure-accuracy-flops" in page.figures
    assert len(page.blocks["points-0"]["points"]) > 0
    damaged, *later = page.missing
    assert damaged.startswith(f"Damaged: {tmp_path / 'run' / 'supernet' / 'log.jsonl'} must hold ")
    assert [line.split(": ")[1].split(" ")[1] for line in later] == ["search", "final"]


def test_a_failed_step_says_why_and_a_later_start_forgets_it(tmp_path, monkeypatch):
    recipe = load_recipe(str(recipe_file(tmp_path)), [])
    with monkeypatch.context() as patched:
        patched.setattr("cafenet.runs.run_recipe.searched_entries", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_recipe(recipe, tmp_path / "run", quiet=True)
    page = Page(write_report(tmp_path / "run").read_text())
    assert "the step search ended with: division by zero" in page.missing[0]
    run_recipe(recipe, tmp_path / "run", quiet=True)
    assert Page(write_report(tmp_path / "run").read_text()).missing == []


@pytest.mark.parametrize("num_trials", [1, 10_000])
def test_one_trial_and_very_many(num_trials):
    run = made_up_run(num_trials)
    page = Page(report_html(run))
    assert page.figures == [f"figure-{name}" for name in FIGURES[1:]]
    assert len(page.blocks["points-0"]["points"]) == -(-num_trials // 3)
    assert any("search has not finished" in line for line in page.missing)


def test_two_thousand_trials_stay_under_three_megabytes():
    assert len(report_html(made_up_run(2000)).encode()) < 3e6


def test_numbers_on_axes_are_not_cut():
    losses = [{"epoch": number, "loss": 0.4251 + 0.0001 * number} for number in range(20)]
    text = report_html(made_up_run(0, space=None, studies=[StudyRecord("supernet", losses, [])]))
    assert re.search(r">0\.42\d\d\d<", text)


@pytest.mark.parametrize(("found_in", "shown"), [("stage-1", 0), ("stage-2", 1), (None, 1)])
def test_the_front_is_that_of_the_supernet_that_the_widths_come_from(found_in, shown):
    whole = made_up_run(60).studies[0]
    halves = [StudyRecord(f"stage-{n + 1}", whole.log, whole.trials[30 * n : 30 * n + 30]) for n in range(2)]
    fixed = {"method": "Fixed pattern", "budget": "50%", "channels": {}, "supernet": "stage-1"}
    entries = [fixed] if found_in is None else [fixed, {**fixed, "method": "CafeNet-T", "supernet": found_in}]
    axes = accuracy_against_flops(made_up_run(1, studies=halves, entries=entries)).axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "Pareto front"]
    complete = [trial for trial in halves[shown].trials if trial.is_complete]
    assert line.get_ydata().max() == pytest.approx(100 * max(trial.value for trial in complete))


def test_only_dropped_widths():
    trials = [trial for trial in made_up_run(9).studies[0].trials if not trial.is_complete]
    run = made_up_run(0, studies=[StudyRecord("supernet", [], trials)])
    assert "progress" in all_figures(run)
    assert "accuracy-flops" not in all_figures(run)
    assert Page(report_html(run)).blocks == {}


def test_an_empty_run():
    page = Page(report_html(made_up_run(0, space=None, manifest={}, studies=[])))
    assert len(page.missing) == 4
    assert page.figures == []


def test_attributes_against_uniform():
    row = {"flops": 1, "params": 1, "latency_ms": 1.0, "accuracies": [0.5], "search_score": None, "widths": {}}
    rows = [
        {**row, "method": "Uniform", "budget": "50%", "per_attribute": [0.5, 0.9]},
        {**row, "method": "CafeNet-E", "budget": "50%", "per_attribute": [0.7, 0.8]},
    ]
    space = {"groups": [], "frozen": [], "attributes": ["Bald", "Smiling"]}
    text = report_html(made_up_run(0, space=space, results={"rows": rows, "reference": []}, studies=[]))
    assert 'data-tip="Bald: +20.00 points"' in text
    assert 'data-tip="Smiling: -10.00 points"' in text


def test_the_command_saves_figures(finished, tmp_path, capsys):
    assert main(["report", str(finished), "--figures", str(tmp_path / "figures")]) == 0
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert written == {f"{name}.{ending}" for name in FIGURES for ending in ("svg", "png")}
    assert (tmp_path / "figures" / "widths.png").read_bytes().startswith(b"\x89PNG")
    assert str(finished / "report.html") in capsys.readouterr().out


def test_a_directory_without_a_run(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "must be a directory of `cafenet run` or `cafenet.search`, but has no recipe.yaml" in capsys.readouterr().err
    with pytest.raises(RecipeError, match="no recipe"):
        read_run(tmp_path / "absent")


@pytest.mark.parametrize("content", ["", "a: [", "- 1"])
def test_a_recipe_that_is_none(tmp_path, capsys, content):
    (tmp_path / "recipe.yaml").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    assert "recipe.yaml must hold the recipe of a run, but " in capsys.readouterr().err


def test_coupled_layers_of_transposed_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 16, 3), nn.Conv2d(16, 8, 1), nn.Flatten())
    space = cafenet.trace(nn.Sequential(model, nn.Linear(8 * 25, 2)), torch.zeros(1, 3, 5, 5))
    described = describe_space(space, uniform_bins(space, 4))
    assert [group["layers"] for group in described["groups"]] == [["0.0"], ["0.1"], ["0.2"]]
