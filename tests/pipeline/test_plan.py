"""The plan before the work: all parts of it, latencies and the comparison included, and the sum over budgets."""

import torch

import cafenet
from cafenet.common.job_progress import duration
from cafenet.pipeline.job import Job
from cafenet.pipeline.plan import PlannedPart, SearchPlan, plan_search, total_of
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.searching.budget import Budget, Cap
from tests.helpers.small_training import built, config, data, traced

EXAMPLE = torch.zeros(1, 3, 4, 4)
TRAIN, VAL = data(64, 1), data(40, 2)
FEW = cafenet.RandomSearch(samples=4)


def planned(capsys, budget, **given):
    """The lines of the plan, and the other lines that a search shows."""
    options = cafenet.SearchOptions(
        algorithm=FEW,
        scoring=cafenet.ScoringConfig(calibration_size=32),
        stages=cafenet.StagesConfig(1),
    )
    given = {"train": config(), "options": options, "trained": False, **given}
    cafenet.search(built(), TRAIN, VAL, budget, **given)
    return capsys.readouterr().err.splitlines()


def parts_of(lines):
    """The parts without their times."""
    return [line[2:].partition(", about")[0].partition(", under")[0] for line in lines if line[2:3].isdigit()]


def test_a_latency_budget_plans_its_measurements(monkeypatch):
    """24 for the estimate, one of a pick and its five checks, each in turns with the full model: 60 of 2 s are 120 s.
    The comparison measures two models three times: 12 s."""
    monkeypatch.setattr("cafenet.pipeline.plan._seconds_per_latency", lambda *_: 2.0)
    model = built()
    job = Job(TRAIN, VAL, training=config(), algorithm=FEW, quiet=True)
    for cost, extra in (("latency_ms", 120), ("flops", 0)):
        budget = Budget("b", (Cap(cost, traced(model).flops() / 2),))
        plan = plan_search(model, traced(model), job, budget, StagesConfig(1), None, None, None, example_inputs=EXAMPLE)
        _, scoring, comparison = plan.parts
        assert scoring.text.endswith(" and measure about 30 latencies") == (extra > 0)
        assert extra <= scoring.seconds < extra + 60
        assert 12 <= comparison.seconds < 72


def test_every_part_of_the_plan_is_a_part_of_the_progress(capsys):
    """The comparison is one: supernet, scores, slim model, Uniform, comparison."""
    lines = planned(capsys, "50%", finetune=config())
    parts = parts_of(lines)
    assert [part[:1] for part in parts] == ["1", "2", "3", "4", "5"]
    assert parts[0].startswith("1. train the supernet for 1 epoch (")
    assert parts[-1] == "5. score the 3 finished models and measure their latencies in turns"
    assert any("part 4 of 5" in line for line in lines)


def test_several_budgets_have_a_total():
    """1.5 + 2.5 and 56 s are a minute."""
    plans = [
        SearchPlan("50%", (PlannedPart("a", 1.5), PlannedPart("b", 2.5)), None, is_begun=False),
        SearchPlan("25%", (PlannedPart("a", 56.0), PlannedPart("b", None)), None, is_begun=False),
    ]
    assert total_of(plans) == f"All 2 budgets: about {duration(60)}."
    assert total_of(plans[:1]) == ""
    assert "  1. a, about 2 s" in str(plans[0])
    assert "under a second" in str(SearchPlan("50%", (PlannedPart("a", 0.2),), None, is_begun=False))
