"""The page of a run says what the run's files say, finished or not."""

import json
import math
import re
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import cafenet
from cafenet.cli.main import main
from cafenet.errors import RecipeError
from cafenet.pipeline.gain_text import count as short
from cafenet.pipeline.run_directory import Again, RunDirectory
from cafenet.report.figures import all_figures
from cafenet.report.models import rows_of
from cafenet.report.run_page import report_html, write_report
from cafenet.report.run_records import StudyRecord, TrainingRecord, read_run
from cafenet.report.search_charts import finished as distinct
from cafenet.report.search_charts import pareto_front, scored_studies, searched_last
from cafenet.report.trials import read_study, read_trials
from cafenet.report.width_charts import Layer, layers_of
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.results import verdict
from cafenet.runs.run_recipe import run_recipe
from cafenet.searching.store.trials import TrialStore
from cafenet.space.bins import uniform_bins
from cafenet.space.description import describe_space
from tests.helpers.pages import Page, made_up_run
from tests.helpers.tiny_run import note, recipe_file

OPEN = ["network", "cost", "widths", "accuracy-flops", "final-training"]
FOLDED = ["progress", "histogram", "training", "bins", "time"]
FOUND = ["widths", "accuracy-flops", *FOLDED]
"""Figures of a run whose final models are not trained."""


@pytest.fixture(scope="module")
def page(finished):
    return Page((finished / "report.html").read_text())


@pytest.fixture(scope="module")
def results(finished):
    return json.loads((finished / "results.json").read_text())


def test_a_run_ends_with_its_page(page):
    assert page.figures == [f"figure-{name}" for name in OPEN + FOLDED]
    assert page.missing == []


def test_what_few_need_is_folded(finished):
    text = (finished / "report.html").read_text()
    shown, _, details = text.partition('<h2 class="details">Details</h2>')
    assert "<details" not in shown
    assert all(f'<figure id="figure-{name}">' in shown for name in OPEN)
    assert all(re.search(rf'<details><summary>[^<]*</summary><figure id="figure-{name}">', details) for name in FOLDED)


def test_a_journal_that_ends_early_at_the_end_of_a_line_is_told(finished, tmp_path):
    """Such a journal is valid. The manifest knows its size, also after the finished run was started again."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (journal,) = copy.glob("supernet/**/trials.journal")
    assert read_run(copy).problems == ()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    directory = RunDirectory(copy, seed=0, again=Again("", ""))
    with directory.timed("evaluate"):
        pass
    (problem,) = read_run(copy).problems
    whole, left = sum(map(len, lines)), sum(map(len, lines[: len(lines) // 2]))
    assert f"{whole:,} bytes" in problem
    assert f"has {left:,}" in problem
    journal.unlink()
    assert "but has 0" in read_run(copy).problems[0]


def test_the_table_is_that_of_the_results(finished, page, results):
    head, *rows = page.tables[0]
    assert head == ["model", "accuracy (test)", "FLOPs", "parameters", "latency", "file"]
    assert len(rows) == len(results["rows"]) == 4
    full = results["rows"][0]["flops"]
    for shown, row in zip(rows, results["rows"], strict=True):
        first, second = (100 * value for value in row["accuracies"])
        assert shown[0] == f"{row['method']} {row['budget']}".strip()
        assert float(shown[1].split(" ")[0]) == pytest.approx((first + second) / 2, abs=0.006)
        assert float(shown[1].split(" ")[2].rstrip("%")) == pytest.approx(abs(first - second) / 2**0.5, abs=0.006)
        share = f" ({row['flops'] / full:.0%})" if row["budget"] else ""
        assert shown[2:4] == [short(row["flops"]) + share, short(row["params"])]
        low, high = row["latency_quartiles_ms"]
        assert shown[4] == f"{row['latency_ms']:.3g} ms ({low:.3g}-{high:.3g})"
    size = (finished / "models" / "original" / "seed-0" / "slim.pt").stat().st_size
    assert rows[0][5] == f"{short(size)}B"


def test_the_widths_are_those_of_the_results(page, results):
    head, *rows = page.tables[1]
    slim = [row for row in results["rows"] if row["budget"]]
    assert head[2:] == [f"{row['method']} {row['budget']}" for row in slim]
    assert {row[0]: list(map(int, row[2:])) for row in rows} == {
        name: [row["widths"][name] for row in slim] for name in slim[0]["widths"]
    }


def test_the_verdict_is_in_plain_words(finished, results):
    (own,) = [row for row in results["rows"] if row["method"] == "CafeNet-E"]
    text = (finished / "report.html").read_text()
    top = text[text.index('<div class="verdict">') : text.index("<section>")]
    headline = re.search(r'<p class="headline">(.*?)</p>', top).group(1)
    rows = rows_of(read_run(finished))
    assert headline == verdict(next(row for row in rows if row.method == "CafeNet-E"), [
        row for row in rows if row.method != "Fixed sharing"]) + "."  # fmt: skip
    assert headline.endswith("(2 seeds).")
    assert f"{sum(own['accuracies']) / 2:.2%} accuracy on 2,000 test examples" in top
    assert 'data-tip="0: 8 to ' in top
    assert "CafeNet-E - Uniform at 50%: " in text
    assert "95% interval" in text


def gain_of(metric, *scores):
    """The comparison of a search: the original, the slim model and Uniform with their scores."""
    models = [
        {"name": name, "flops": flops, "params": 10 * flops, "latency_ms": 1.0, "file_bytes": 4000, "score": score,
         "test_score": None}
        for name, flops, score in zip(("before", "after", "Uniform"), (400, 100, 100), scores, strict=True)
    ]  # fmt: skip
    return {"metric": metric, "models": models, "is_trained": True, "uniform": "with the same fine-tuning",
            "num_validation": 500, "num_test": None}  # fmt: skip


def test_a_perplexity_is_better_where_it_is_lower():
    """The score of a perplexity is minus its logarithm: -log(8) is a perplexity of 8."""
    recipe = {"description": "net", "metric": "perplexity", "call": "cafenet.search", "budget": "25%"}
    gain = gain_of("perplexity", *(-math.log(value) for value in (8, 9, 12)))
    entry = {"method": "CafeNet-T", "budget": "25%", "search_score": -2.0, "supernet": "supernet", "channels": {}}
    text = report_html(made_up_run(9, gains=[gain], entries=[entry], recipe=recipe))
    assert "A quarter of the FLOPs, 9 perplexity (the original 8 and Uniform 12) (1 seed)." in text
    assert "down and to the left is better" in text


def page_of_gains(*gains, budgets=("25%",), **fields):
    """The page of a search that found widths of two channels for each budget."""
    entries = [
        {"method": "CafeNet-T", "budget": budget, "search_score": 0.4, "supernet": "supernet",
         "channels": {"features.0.conv": [0, 1]}}
        for budget in budgets
    ]  # fmt: skip
    recipe = {"description": "net", "metric": "accuracy", "call": "cafenet.search", "budget": ",".join(budgets)}
    return report_html(made_up_run(9, gains=list(gains), entries=entries, recipe=recipe, **fields))


def test_where_uniform_is_better_the_verdict_begins_with_that():
    """Of two budgets, Uniform is better at one."""
    page = page_of_gains(
        gain_of("accuracy", 0.9, 0.85, 0.88), gain_of("accuracy", 0.9, 0.88, 0.85), budgets=("25%", "24%")
    )
    assert (
        '<p class="headline">Uniform has the better score at 25%. The slim model: a quarter of the FLOPs, 5.00 '
        "points below the original; 3.00 points below Uniform (1 seed).</p>"
    ) in page
    assert "Consider the Uniform model (result.uniform), if its latency suits you: it is 3.00 points better" in page
    assert "<b>CafeNet-T 24%:</b> A quarter of the FLOPs, 2.00 points below the original; 3.00 points above" in page


@pytest.mark.parametrize(
    ("budget", "saved"),
    [("12ms", "Half the latency"), ("300 params", "A third of the parameters"), ("40%", "A quarter")],
)
def test_the_verdict_names_the_cost_that_was_capped(budget, saved):
    """The slim model has 100 of 400 FLOPs, 500 of 1,500 parameters and 1 of 2 ms."""
    gain = gain_of("accuracy", 0.9, 0.88, 0.85)
    gain["models"][0] |= {"latency_ms": 2.0, "params": 1500}
    gain["models"][1] |= {"params": 500}
    assert f'<p class="headline">{saved}' in page_of_gains(gain, budgets=(budget,))


def test_a_latency_whose_quartiles_overlap_is_no_change():
    gain = gain_of("accuracy", 0.9, 0.88, 0.85)
    for each, latency, spread in zip(
        gain["models"], (2.0, 1.0, 1.0), ([1.9, 2.2], [0.9, 1.1], [0.9, 1.1]), strict=True
    ):
        each |= {"latency_ms": latency, "latency_range_ms": spread}
    page = page_of_gains(gain)
    assert '<dt>latency</dt><dd class="change">\N{MINUS SIGN}50%</dd>' in page
    assert "2 ms (1.9-2.2)" in page
    gain["models"][1]["latency_range_ms"] = [0.9, 1.95]
    assert '<dt>latency</dt><dd class="change">unclear</dd>' in page_of_gains(gain)


def test_a_search_lists_all_widths():
    page = Page(page_of_gains(gain_of("accuracy", 0.9, 0.88, 0.85)))
    (widths,) = [rows for rows in page.tables if rows[0][0] == "width group"]
    assert widths[0] == ["width group", "full", "CafeNet-T 25%"]
    assert widths[1] == ["features.0.conv", "512", "2"]


def test_final_trainings_have_a_chart_for_each_budget_and_one_legend():
    log = [{"epoch": number / 10, "loss": 1.0 - number / 20} for number in range(10)]
    names = [("Original", ""), ("CafeNet-T", "50%"), ("CafeNet-T", "25%"), ("Uniform", "50%"), ("Uniform", "25%")]
    figures = all_figures(made_up_run(9, trainings=[TrainingRecord(*name, log) for name in names]))
    charts = figures["final-training"].charts
    assert [chart.up_title for chart in charts] == ["training loss, 50%", "training loss, 25%"]
    assert [[(key.label, key.series) for key in chart.keys] for chart in charts] == [
        [("Original", 0), ("CafeNet-T", 1), ("Uniform", 2)],
        [],
    ]


def test_the_supernet_of_the_fixed_pattern_has_the_colour_of_its_model():
    """Random stands before it, so it has the second of the other colours, in the search as among the results."""
    entries = [
        {"method": method, "budget": "50%", "search_score": None, "channels": {"features.0.conv": [0]}}
        for method in ("Random", "Fixed sharing")
    ]
    run = made_up_run(9, entries=entries)
    run = replace(run, studies=[replace(run.studies[0], name="supernet-fixed")])
    (chart,) = all_figures(run)["accuracy-flops"].charts
    assert chart.keys[0].kind == "other-2"


def test_many_differences_are_folded(finished):
    run = read_run(finished)
    assert "differences, with intervals" not in report_html(run)  # three of them
    rows = [{**row, "budget": budget} for row in run.results["rows"] for budget in ("50%", "25%") if row["budget"]]
    page = report_html(replace(run, results={**run.results, "rows": [run.results["rows"][0], *rows]}))
    assert "All 6 differences, with intervals" in page


def test_a_search_shows_finished_models_and_never_the_supernets_score():
    gain = gain_of("accuracy", 0.9, 0.88, 0.85)
    entry = {"method": "CafeNet-T", "budget": "25%", "search_score": 0.4321, "supernet": "supernet",
             "channels": {"features.0.conv": [0, 1]}}  # fmt: skip
    recipe = {"description": "net", "metric": "accuracy", "call": "cafenet.search", "budget": "25%"}
    text = report_html(made_up_run(9, gains=[gain], entries=[entry], recipe=recipe))
    assert "A quarter of the FLOPs, 2.00 points below the original; 3.00 points above Uniform (1 seed)." in text
    assert "reaches 88.00% accuracy on 500 validation examples" in text
    assert [row[:2] for row in Page(text).tables[0]] == [
        ["model", "accuracy (validation)"],
        ["Original", "90.00%"],
        ["CafeNet-T 25%", "88.00%"],
        ["Uniform 25%", "85.00%"],
    ]
    (told,) = [tip for tip in re.findall(r'data-tip="([^"]*)"', text) if "43.21" in tip]
    assert told == "CafeNet-T 25%: the widths that were picked, 43.21 in the supernet at 100 FLOPs"
    assert text.count("43.21") == 1


def test_scores_like_chance_reach_the_verdict(finished):
    run = read_run(finished)
    warned = [replace(study, warning="scores look like chance: 10.0%") for study in run.studies]
    text = report_html(replace(run, studies=warned))
    assert '<p class="headline">Nothing can be concluded: scores look like chance.</p>' in text
    assert '<p class="doubt">Scores look like chance: 10.0%.</p>' in text
    assert "Warning: scores look like chance" in report_html(made_up_run(3, studies=warned))


def test_warnings_are_kept_with_the_study(tmp_path):
    space = cafenet.trace(nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1)), torch.zeros(1, 1, 2, 2))
    store = TrialStore(tmp_path / "trials.journal", uniform_bins(space, 2), {})
    assert read_study(tmp_path / "trials.journal") == ([], "")
    store.warn("scores look like chance")
    assert read_study(tmp_path / "trials.journal") == ([], "scores look like chance")


def test_the_dots_are_the_study(finished, page):
    trials = [trial for trial in distinct(read_trials(finished / "supernet" / "trials.journal")) if trial.is_complete]
    trials.sort(key=lambda trial: trial.costs["flops"])
    block = page.blocks["points-0"]
    assert block["groups"] == list(trials[0].widths)
    assert block["points"] == [
        [round(100 * trial.value, 4), int(trial.costs["flops"]), list(trial.widths.values())] for trial in trials
    ]
    source = (finished / "report.html").read_text()
    drawn = source[source.index('data-points="points-0"') :]
    assert drawn[: drawn.index("</g>")].count("<circle ") == len(trials)


def test_the_bars_are_the_widths(finished, results):
    (own,) = [row for row in results["rows"] if row["method"] == "CafeNet-E"]
    text = (finished / "report.html").read_text()
    figure = text[text.index('id="figure-widths"') : text.index('id="figure-accuracy-flops"')]
    tips = re.findall(r'data-tip="([^":]*): (\d+) of (\d+) channels; Uniform keeps \d+"', figure)
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
        ("train", ["no width has been scored", "search has not finished", "models are"], ["training", "bins", "time"]),
        ("search", ["models are"], FOUND),
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
    assert page.figures == [f"figure-{name}" for name in FOUND[1:]]
    assert len(page.blocks["points-0"]["points"]) == -(-num_trials // 3)
    assert any("search has not finished" in line for line in page.missing)


def test_two_thousand_trials_stay_under_three_megabytes():
    assert len(report_html(made_up_run(2000)).encode()) < 3e6


def test_numbers_on_axes_are_not_cut():
    losses = [{"epoch": number, "loss": 0.4251 + 0.0001 * number} for number in range(20)]
    text = report_html(made_up_run(0, space=None, studies=[StudyRecord("supernet", losses, [])]))
    ticks = re.findall(r">(0\.42\d*)<", text)
    assert len(ticks) == len(set(ticks)) >= 3


@pytest.mark.parametrize(("found_in", "shown"), [("stage-1", 0), ("stage-2", 1), (None, 1)])
def test_the_front_is_that_of_the_supernet_that_the_widths_come_from(found_in, shown):
    whole = made_up_run(60).studies[0]
    halves = [StudyRecord(f"stage-{n + 1}", whole.log, whole.trials[30 * n : 30 * n + 30]) for n in range(2)]
    fixed = {"method": "Fixed sharing", "budget": "50%", "channels": {}, "search_score": 0.5, "supernet": "stage-1"}
    entries = [fixed] if found_in is None else [fixed, {**fixed, "method": "CafeNet-T", "supernet": found_in}]
    run = made_up_run(1, studies=halves, entries=entries)
    assert searched_last(run, list(scored_studies(run))) == f"stage-{shown + 1}"
    front = pareto_front(scored_studies(run)[f"stage-{shown + 1}"])
    drawn = re.search(r'<polyline class="thin front" points="([^"]*)"', report_html(run)).group(1)
    assert len(drawn.split(" ")) == len(front)
    assert f"front of stage-{shown + 1}: best score at each cost" in report_html(run)
    assert front[-1].value == max(trial.value for trial in halves[shown].trials if trial.is_complete)


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
    assert re.search(r'x="0.00%" width="33.33%"[^>]*data-tip="Smiling', text), "10 of 30 points, to the left of zero"


def test_the_command_saves_figures(finished, tmp_path, capsys):
    place = tmp_path / "figures"
    assert main(["report", str(finished), "--figures", str(place), "--output", str(tmp_path / "x" / "page.html")]) == 0
    written = {path.name: path.read_text() for path in place.iterdir()}
    assert set(written) == {f"{name}.svg" for name in (*OPEN[1:], *FOLDED)}
    for drawn in written.values():
        assert "var(" not in drawn, "programs that are no browsers know no names of colours"
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert (tmp_path / "x" / "page.html").read_text() == (finished / "report.html").read_text()
    assert str(tmp_path / "x" / "page.html") in capsys.readouterr().out


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
    kinds = [(layer["name"], layer["kind"]) for layer in described["layers"]]
    assert kinds == [("0.0", "Conv2d"), ("0.1", "ConvTranspose2d"), ("0.2", "Conv2d")]


def test_layers_stand_in_the_order_of_the_network():
    groups = [{"name": "a", "layers": ["a", "c"], "channels": 8}, {"name": "b", "layers": ["b"], "channels": 4}]
    space = {"groups": groups, "layers": [{"name": name, "kind": "Conv2d"} for name in "abc"]}
    assert layers_of(space, {"a": 2}) == [Layer("a", 8, 2), Layer("b", 4, 4), Layer("c", 8, 2)]
