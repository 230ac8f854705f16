"""Runs side by side: what differs is found, and accuracy and time stand beside it."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from cafenet.cli.main import main
from cafenet.common.plain_values import digest_of_values
from cafenet.common.seals import sealed
from cafenet.errors import RecipeError
from cafenet.report.comparison import read_comparison, sentences
from cafenet.report.comparison_page import comparison_figures, comparison_html
from tests.helpers.pages import Page
from tests.helpers.tiny_run import note


def changed(finished, place, better=0.0, **keys):
    """A copy of the run whose recipe and results are others."""
    shutil.copytree(finished, place)
    recipe = yaml.safe_load((place / "recipe.yaml").read_text())
    for key, value in keys.items():
        section, _, name = key.partition("__")
        recipe[section][name] = value
    (place / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    note(place, recipe=digest_of_values(recipe))
    results = json.loads((place / "results.json").read_text())
    for row in results["rows"]:
        if row["method"] == "CafeNet-E":
            row["accuracies"] = [value + better + 0.001 * number for number, value in enumerate(row["accuracies"])]
    (place / "results.json").write_text(json.dumps(sealed(results)))
    return place


def test_one_number_that_differs_is_swept(finished, tmp_path):
    other = changed(finished, tmp_path / "r2", better=0.25, supernet__r=2)
    comparison = read_comparison([finished, other])
    assert comparison.keys == ["supernet.r"]
    assert comparison.swept() == "supernet.r"
    assert [line.settings["supernet.r"] for line in comparison.own] == [1, 2]
    assert list(comparison_figures(comparison)) == ["sweep", "accuracy-flops", "histogram", "training"]


def test_the_page_shows_each_runs_own_numbers(finished, tmp_path):
    other = changed(finished, tmp_path / "r2", better=0.25, supernet__r=2)
    page = Page(comparison_html(read_comparison([finished, other])))
    head, *rows = page.tables[0]
    assert head == ["model", "accuracy", "supernet.r", "FLOPs", "time of the run"]
    own = {row[0].partition(":")[0]: row for row in rows if row[0].endswith("CafeNet-E 50%")}
    for place in (finished, other):
        (row,) = [
            row for row in json.loads((place / "results.json").read_text())["rows"] if row["method"] == "CafeNet-E"
        ]
        assert float(own[place.name][1].split(" ")[0]) == pytest.approx(50 * sum(row["accuracies"]), abs=0.006)
    assert len(rows) == 5, "baselines that both runs share are shown once"


def test_the_difference_is_paired_and_claimed_only_when_clear(finished, tmp_path):
    clear = changed(finished, tmp_path / "clear", better=0.25, supernet__r=2)
    unclear = changed(finished, tmp_path / "unclear", better=-0.0001, supernet__r=3)
    said = sentences(read_comparison([finished, clear, unclear]))
    assert said[0].startswith("clear: CafeNet-E 50% - whole: CafeNet-E 50%: +25.05 points (95% interval +24.41 to")
    assert "not clear" not in said[0]
    assert said[1].endswith("not clear)")


def test_text_and_several_keys(finished, tmp_path):
    other = changed(finished, tmp_path / "o", supernet__choice="exact", supernet__r=2, supernet__beta=2.0)
    comparison = read_comparison([finished, other])
    assert comparison.keys == ["supernet.r", "supernet.beta", "supernet.choice"]
    assert comparison.swept() is None
    assert "sweep" not in comparison_figures(comparison)


def test_runs_of_one_name_are_told_apart(finished, tmp_path):
    other = changed(finished, tmp_path / finished.name, supernet__r=2)
    names = [run.name for run in read_comparison([finished, other]).runs]
    assert names == [str(finished), str(other)]


def test_an_unfinished_run_is_said_to_be(finished, tmp_path):
    other = changed(finished, tmp_path / "cut", supernet__r=2)
    (other / "results.json").unlink()
    note(other, finished=None)
    page = Page(comparison_html(read_comparison([finished, other])))
    assert any(line.startswith("Not there yet: cut: the final models") for line in page.missing)


def test_the_command(finished, tmp_path, capsys):
    other = changed(finished, tmp_path / "r2", supernet__r=2)
    output = tmp_path / "page.html"
    figures = tmp_path / "figures"
    assert main(["compare", str(finished), str(other), "--output", str(output), "--figures", str(figures)]) == 0
    assert "figure-sweep" in Page(output.read_text()).figures
    assert (figures / "sweep.svg").exists()
    assert "supernet.r" in capsys.readouterr().out


def test_one_run_is_no_comparison(finished, capsys):
    assert main(["compare", str(finished)]) == 2
    assert "two runs at least, but got 1" in capsys.readouterr().err
    with pytest.raises(RecipeError):
        read_comparison([])


def test_other_seeds_are_no_pairs(finished, tmp_path):
    other = changed(finished, tmp_path / "other", finetune__seeds=[5, 6])
    assert sentences(read_comparison([finished, other])) == []


def test_a_run_that_goes_on_with_more_seeds_has_no_pairs_yet(finished, tmp_path):
    """Its recipe has the new seeds, its table those of before."""
    seeds = yaml.safe_load((finished / "recipe.yaml").read_text())["finetune"]["seeds"]
    first = changed(finished, tmp_path / "first", finetune__seeds=[*seeds, 8])
    second = changed(finished, tmp_path / "second", finetune__seeds=[*seeds, 8], train__epochs=9)
    results = json.loads((first / "results.json").read_text())
    for row in results["rows"]:
        row["accuracies"] = [*row["accuracies"], 0.5]
    (first / "results.json").write_text(json.dumps(sealed(results)))
    assert sentences(read_comparison([first, second])) == []


def test_a_run_that_may_not_be_written_is_read(finished, tmp_path, monkeypatch):
    def only_read(path, mode="r", *args, **options):
        assert not set(mode) & set("aw+"), f"{path} is opened for writing"
        return opened(path, mode, *args, **options)

    opened = Path.open
    other = changed(finished, tmp_path / "other", train__epochs=9)
    monkeypatch.setattr(Path, "open", only_read)
    assert read_comparison([finished, other]).runs[0].studies[0].trials


def test_brackets_are_shown_as_they_are(finished, tmp_path, capsys):
    other = changed(finished, tmp_path / "a[seed=1]", train__epochs=9)
    page = tmp_path / "[/v2].html"
    assert main(["compare", str(finished), str(other), "--output", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "a[seed=1]: CafeNet-E" in shown
    assert str(page) in shown.replace("\n", "")


def test_a_page_that_cannot_be_written(finished, tmp_path, capsys):
    other = changed(finished, tmp_path / "other", train__epochs=9)
    assert main(["compare", str(finished), str(other), "--output", str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be read or written: Is a directory" in capsys.readouterr().err


def test_a_number_beside_another_key_is_no_sweep(finished, tmp_path):
    other = changed(finished, tmp_path / "other", supernet__r=2, supernet__choice="exact")
    assert read_comparison([finished, other]).swept() is None
    moved = changed(finished, tmp_path / "moved", supernet__r=2, data__source="npz:elsewhere")
    assert read_comparison([finished, moved]).swept() == "supernet.r"


def test_one_directory_twice(finished, capsys):
    assert main(["compare", str(finished), str(finished / ".." / finished.name)]) == 2
    assert "one was given twice" in capsys.readouterr().err


def test_many_keys_have_a_table_of_their_own(finished, tmp_path, capsys):
    keys = {"supernet__r": 2, "supernet__beta": 3.0, "supernet__choice": "exact", "train__epochs": 7}
    other = changed(finished, tmp_path / "other", **keys)
    (other / "results.json").unlink()
    note(other, finished=None)
    assert main(["compare", str(finished), str(other), "--output", str(tmp_path / "page.html")]) == 0
    told = capsys.readouterr().out
    assert "what differs" in told
    assert all(key.replace("__", ".") in told for key in keys)
    differing = Page((tmp_path / "page.html").read_text()).tables[-1]
    assert differing[0] == ["key", "whole", "other"]
    assert [row[0] for row in differing[1:]] == read_comparison([finished, other]).keys
    assert "other: the final models are not all trained" in " ".join(told.split())


@pytest.mark.parametrize("name", ["_hidden", "a$b$c"])
def test_names_that_mean_something_to_the_plotter(finished, tmp_path, name):
    other = changed(finished, tmp_path / name, supernet__r=2)
    assert "<svg" in comparison_html(read_comparison([finished, other]))


def test_a_colour_means_one_run_or_one_baseline(finished, tmp_path):
    other = changed(finished, tmp_path / "r2", better=0.25, supernet__r=2)
    comparison = read_comparison([finished, other])
    (chart,) = comparison_figures(comparison)["accuracy-flops"].charts
    kinds = {key.label: key.kind for key in chart.keys}
    assert kinds == {"whole": "own", "r2": "other-1", "Uniform": "uniform", "Original": "original",
                     "Fixed sharing": "original"}  # fmt: skip
    shapes = {key.label: key.shape for key in chart.keys}
    assert shapes["Original"] != shapes["Fixed sharing"]
    (losses,) = comparison_figures(comparison)["training"].charts
    assert {key.label: key.kind for key in losses.keys} == {"whole": "own", "r2": "other-1"}
