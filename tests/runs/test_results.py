"""The table and what may be claimed of it: text by hand, for one seed and for several."""

import json
import math

import pytest
from rich.console import Console

from cafenet.runs.recipe import Reference
from cafenet.runs.results import Row, as_document, claims, comparisons, count, results_table, verdict


def row_of(method: str, accuracies: tuple[float, ...], budget: str = "50%", **more) -> Row:
    options = {"flops": 150_000_000, "params": 1_500, "latency_ms": 1.5, "search_score": None, "widths": {"a": 4}}
    return Row(method, budget, accuracies=accuracies, **{**options, **more})


ONE_SEED = [
    row_of("Original", (0.9,), "", flops=300_000_000),
    row_of("Uniform", (0.85,)),
    row_of("Uniform", (0.8,), "25%"),
    row_of("CafeNet-E", (0.8812,)),
    row_of("CafeNet-R", (0.84,), "25%"),
]


def shown(rows: list[Row], references: list[Reference] = (), title: str = "") -> list[list[str]]:
    """The cells of the printed table, row by row."""
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(results_table(rows, references, title))
    lines = captured.get().splitlines()
    return [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines if line.startswith("│")]


def test_the_table_of_one_seed():
    assert shown(ONE_SEED[:2]) == [
        ["Original", "-", "300.00M", "1.50K", "1.50 ms", "90.00%"],
        ["Uniform", "50%", "150.00M (50%)", "1.50K", "1.50 ms", "85.00%"],
    ]


def test_the_table_of_several_seeds():
    """The spread is the standard deviation of a sample: of 80, 82 and 84 it is 2."""
    ((*_, accuracy),) = shown([row_of("CafeNet-E", (0.8, 0.82, 0.84))])
    assert accuracy == "82.00 ± 2.00%"


def test_without_the_original_there_is_no_share():
    assert shown(ONE_SEED[1:2])[0][2] == "150.00M"


def test_published_rows_are_marked():
    reference = Reference("AutoSlim", budget="50%", flops="150M", params="4.1M", accuracy="74.2%")
    assert shown(ONE_SEED[:1], [reference])[1] == ["AutoSlim (published)", "50%", "150M", "4.1M", "", "74.2%"]


def test_the_table_says_what_is_counted():
    table = results_table(ONE_SEED, [], "my run")
    assert table.title == "my run"
    assert "One multiply-add is one FLOP" in table.caption
    assert "test set" in table.caption


def test_comparisons_are_with_the_same_budget_and_the_original():
    pairs = [(ours.method, other.method, ours.budget) for ours, other, _ in comparisons(ONE_SEED)]
    assert pairs == [
        ("CafeNet-E", "Original", "50%"),
        ("CafeNet-E", "Uniform", "50%"),
        ("CafeNet-R", "Original", "25%"),
        ("CafeNet-R", "Uniform", "25%"),
    ]
    assert [other.budget for _, other, _ in comparisons(ONE_SEED)] == ["", "50%", "", "25%"]


def test_one_seed_claims_nothing_about_chance():
    said = claims(ONE_SEED)
    assert (
        said[0]
        == "CafeNet-E at 50%: half the FLOPs, 1.88 points below the original; 3.12 points above Uniform (1 seed)"
    )
    assert len(said) == 2, "intervals need several seeds"


def test_small_differences_of_one_seed():
    """0.2 points are less than two trainings of one network differ by; a loss against the original is told anyway."""
    full = Row("Original", "", 300, 1500, 1.0, (0.7,), None, {})
    rows = [full, row_of("Uniform", (0.7,), flops=150), row_of("CafeNet-E", (0.698,), flops=150)]
    assert (
        verdict(rows[2], rows) == "Half the FLOPs, 0.20 points below the original; no different from Uniform (1 seed)"
    )
    rows[2] = row_of("CafeNet-E", (0.702,), flops=114)
    assert verdict(rows[2], rows) == "38% of the FLOPs, no different from the original or from Uniform (1 seed)"


def test_a_clear_difference_of_three_seeds():
    """Differences of 1, 2 and 3 points: 2 with a standard error of 0.5774, and t is 4.3027: 2 - 2.48 to 2 + 2.48."""
    rows = [row_of("Uniform", (0.7, 0.7, 0.7)), row_of("CafeNet-E", (0.71, 0.72, 0.73))]
    head, pair = claims(rows)
    assert "no clear difference from Uniform (3 seeds)" in head
    assert pair == "CafeNet-E - Uniform at 50%: +2.00 points (95% interval -0.48 to +4.48, not clear)"
    rows[1] = row_of("CafeNet-E", (0.719, 0.72, 0.721))
    head, pair = claims(rows)
    assert "2.00 points above Uniform (3 seeds)" in head
    assert pair == "CafeNet-E - Uniform at 50%: +2.00 points (95% interval +1.75 to +2.25)"
    rows[1] = row_of("CafeNet-E", (0.679, 0.68, 0.681))
    head, pair = claims(rows)
    assert "2.00 points below Uniform (3 seeds)" in head
    assert pair == "CafeNet-E - Uniform at 50%: -2.00 points (95% interval -2.25 to -1.75)"


def test_the_document_is_plain_and_whole():
    rows = [row_of("Uniform", (0.5, 0.6), per_attribute=(0.5, 0.7)), row_of("CafeNet-E", (0.7, 0.75), top5=0.9)]
    document = json.loads(json.dumps(as_document(rows, [Reference("TAS", accuracy="93.2")]), allow_nan=False))
    assert document["rows"][0] == {
        "method": "Uniform",
        "budget": "50%",
        "flops": 150_000_000,
        "params": 1500,
        "latency_ms": 1.5,
        "latency_quartiles_ms": None,
        "accuracies": [0.5, 0.6],
        "search_score": None,
        "widths": {"a": 4},
        "per_attribute": [0.5, 0.7],
        "top5": None,
    }
    (comparison,) = document["comparisons"]
    assert comparison["mean"] == pytest.approx(0.175)
    assert comparison["low"] < 0.175 < comparison["high"]
    assert (comparison["first"], comparison["second"], comparison["num_pairs"]) == ("CafeNet-E", "Uniform", 2)
    assert document["reference"][0]["method"] == "TAS"


def test_one_pair_is_written_without_an_interval():
    document = as_document(ONE_SEED, [])
    assert {(each["low"], each["high"]) for each in document["comparisons"]} == {(None, None)}
    assert not any(math.isnan(each["mean"]) for each in document["comparisons"])


@pytest.mark.parametrize(
    ("number", "text"),
    [(1_500_000, "1.50M"), (2.5e9, "2.50G"), (999, "999"), (1000, "1.00K"), (0, "0"), (11_424, "11.42K")],
)
def test_counts(number, text):
    assert count(number) == text
