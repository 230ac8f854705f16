"""How the reliability benchmark tells outcomes apart, and some of its cases."""

import json
import sys
import time

import pytest
import torch
from torch import nn

import cafenet
from benchmarks.reliability import children, damaged, hostile, inputs, kills, models
from benchmarks.reliability.jobs import JOBS
from benchmarks.reliability.wrong_calls import CALLS, UsersMistake, net, raising, search
from benchmarks.reliability.wrong_loops import LOOPS
from cafenet.common.seals import sealed

PARTS = (kills.PART, damaged.PART, inputs.PART, hostile.PART, models.PART)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def ended(function, tmp_path, limit_s=20.0):
    return children.run(function, tmp_path / "words", tmp_path / "cwd", limit_s)


def say(code):
    print("error: x must hold, but is 3", file=sys.stderr)
    return code


def test_how_children_end(tmp_path):
    assert ended(lambda: {"a": [1]}, tmp_path).value == {"a": [1]}
    assert ended(lambda: 2, tmp_path).code == 2
    assert ended(lambda: sys.exit("no"), tmp_path).last_line == "no"
    failed = ended(lambda: 1 / 0, tmp_path)
    assert (failed.code, failed.has_traceback, failed.last_line) == (1, True, "ZeroDivisionError: division by zero")
    late = ended(lambda: time.sleep(30), tmp_path, limit_s=0.1)
    assert late.code is None
    assert late.seconds < 5


def test_outcomes_of_commands(tmp_path):
    assert damaged.troubled(ended(lambda: 0, tmp_path)) is None
    assert damaged.troubled(ended(lambda: say(2), tmp_path)).kind == damaged.CLEAR
    assert damaged.troubled(ended(lambda: say(1), tmp_path)).kind == damaged.TRACEBACK
    assert damaged.troubled(ended(lambda: 1 / 0, tmp_path)).kind == damaged.TRACEBACK


@pytest.mark.parametrize("name", ["truncated", "noise"])
def test_a_damaged_slim_model_is_made_again(name, shared, tmp_path):
    file = next(each for each in damaged.files_of(damaged.template(JOBS["run"], "finished", shared)) if "slim" in each)
    outcome = damaged.damaged(JOBS["run"], "finished", file, name, "again", tmp_path, shared)
    assert outcome.kind == damaged.SAME, outcome.detail


def test_an_undamaged_job_is_the_same_again(shared, tmp_path, monkeypatch):
    monkeypatch.setitem(damaged.DAMAGES, "none", lambda content, name: content)
    for use in damaged.uses(JOBS["search"]):
        outcome = damaged.damaged(JOBS["search"], "unfinished", "recipe.yaml", "none", use, tmp_path / use, shared)
        assert outcome.kind == damaged.SAME, (use, outcome.detail)


def test_a_wrong_table_is_a_wrong_result(shared, tmp_path, monkeypatch):
    def forged(content, name):
        return json.dumps(sealed(json.loads(content.replace(b"Uniform", b"Uniforn")))).encode()

    monkeypatch.setitem(damaged.DAMAGES, "other", forged)
    outcome = damaged.damaged(JOBS["run"], "finished", "results.json", "other", "report", tmp_path, shared)
    assert outcome.kind == damaged.WRONG
    assert "nothing of the damage" in outcome.detail


@pytest.mark.parametrize(
    ("call", "value", "kind"),
    [
        (lambda v: cafenet.trace(net(), v), None, inputs.CLEAR),
        (lambda v: search(budget=v), "many", inputs.CLEAR),
        (lambda v: search(loss=v), raising, inputs.USERS),
        (lambda v: len(v), 3, inputs.TRACEBACK),
        (lambda v: v, 3, inputs.ACCEPTED),
    ],
)
def test_outcomes_of_calls(call, value, kind, tmp_path):
    assert inputs.tried(call, value, tmp_path).kind == kind


@pytest.mark.parametrize("line", ["run absent", "inspect torchvision:absent", "export {run} model.exe"])
def test_outcomes_of_command_lines(line, shared, tmp_path):
    outcome = inputs.typed(line, tmp_path, shared)
    assert outcome.kind == inputs.CLEAR, outcome.detail


def test_a_user_s_mistake_is_an_error_of_the_user_s_own():
    assert not issubclass(UsersMistake, cafenet.CafeNetError)


def test_pickles_run_where_nothing_guards_and_are_refused_where_cafenet_reads(tmp_path):
    guarded = hostile._refusal(lambda: hostile._load_slim(hostile.raw_pickle))(tmp_path / "guarded")
    assert guarded.kind == hostile.REFUSED

    def unguarded() -> int:
        hostile.raw_pickle(tmp_path / "bomb.pt")
        torch.load(tmp_path / "bomb.pt", weights_only=False)
        return 0

    assert hostile._refusal(unguarded)(tmp_path / "unguarded").kind == hostile.RAN


def test_scripts_in_pages():
    for text in hostile.SCRIPTS.values():
        assert hostile._page_judged(f"<p>{text}</p>").kind == hostile.SCRIPT
        assert hostile._page_judged(f"<p>{text.replace('<', '&lt;').replace('>', '&gt;')}</p>").kind == hostile.ESCAPED


class Changing(nn.Module):
    """A network that keeps something of its first call, in one of several ways."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.body, self.table = kind, net(), {}

    def forward(self, x):
        if self.kind == "hook" and not self.body[0]._forward_hooks:
            self.body[0].register_forward_hook(lambda *arguments: None)
        return self.body(x)


def test_what_a_snapshot_notices():
    model = Changing("none")
    before = models.snapshot(model)
    assert before.differences(models.snapshot(model)) == []
    changes = {
        "hook": lambda: model.body[0].register_forward_hook(print),
        "attribute": lambda: setattr(model, "seen", True),
        "inside": lambda: model.table.update(a=1),
        "weight": lambda: model.body[0].weight.data.mul_(2),
        "random": lambda: torch.rand(1),
        "mode": lambda: model.eval(),
    }
    for name, change in changes.items():
        before = models.snapshot(model)
        change()
        assert before.differences(models.snapshot(model)), name


def test_models_that_stay_as_they_are():
    kind, detail = models.looked_at(Changing("none"), torch.zeros(1, 1, 12, 12))
    assert (kind, detail) == (models.SAME, "")
    kind, detail = models.looked_at(nn.Conv2d(1, 4, 3), torch.zeros(1, 1, 12, 12))
    assert kind == models.SAME_REFUSED


def test_at_least_300_wrong_inputs_with_names_of_their_own(shared):
    """A name is also how a case's outcome is kept, so no two may have the same one."""
    names = [case.name for case in inputs.cases(shared)]
    assert len(names) == len(set(names)) >= 300
    assert sum(len(values) for table in (*CALLS.values(), *LOOPS.values()) for _, _, values in table) >= 700


def test_at_least_100_kills():
    assert kills.SERIES * kills.KILLS * len(JOBS) >= 100


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_outcomes_are_good_or_bad(part):
    assert not set(part.good) & set(part.bad)
