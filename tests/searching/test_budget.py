"""Budgets as people write them, for a model whose costs are known: 10,000 FLOPs and 120 params."""

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import BudgetError
from cafenet.searching.budget import Budget, Cap, parse_budget, parse_budgets

# 10x10 places x (3 x 20 + 20 x 2) = 10,000 multiply-adds; 3 x 20 + 20 + 20 x 2 = 120 params
SPACE = cafenet.trace(nn.Sequential(nn.Conv2d(3, 20, 1), nn.Conv2d(20, 2, 1, bias=False)), torch.zeros(1, 3, 10, 10))


def caps(text, full_latency_ms=None):
    return [(cap.cost, cap.limit) for cap in parse_budget(text, SPACE, full_latency_ms=full_latency_ms).caps]


def problem(text, full_latency_ms=None):
    with pytest.raises(BudgetError) as caught:
        parse_budget(text, SPACE, full_latency_ms=full_latency_ms)
    return str(caught.value)


def test_costs_of_the_model():
    assert (SPACE.flops(), SPACE.params()) == (10_000, 120)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50%", ("flops", 5000)),
        ("50 % FLOPs", ("flops", 5000)),
        ("29%", ("flops", 2900)),  # 0.29 * 10,000 is 2899.9999999999995
        ("99.99%", ("flops", 9999)),
        ("0.5%", ("flops", 50)),
        (".5%", ("flops", 50)),
        ("2.00001% params", ("params", 2.400012)),
        ("9999", ("flops", 9999)),
        ("5K", ("flops", 5000)),
        ("2.5kflops", ("flops", 2500)),
        ("1.5 K MACs", ("flops", 1500)),
        ("0.001M", ("flops", 1000)),
        ("0.000001g", ("flops", 1000)),
        ("0.000001B", ("flops", 1000)),
        ("0.000000001 T", ("flops", 1000)),
        ("50% params", ("params", 60)),
        ("100PARAMS", ("params", 100)),
        ("0.1k parameters", ("params", 100)),
        ("12ms", ("latency_ms", 12)),
        (" 0.25 MS ", ("latency_ms", 0.25)),
        ("12 ms latency", ("latency_ms", 12)),
    ],
)
def test_one_cap(text, expected):
    assert caps(text) == [expected]


def test_several_caps_all_hold_and_the_text_is_kept():
    budget = parse_budget(" 50%+100 params + 12ms", SPACE)
    assert budget == Budget("50%+100 params + 12ms", (Cap("flops", 5000), Cap("params", 100), Cap("latency_ms", 12)))


def test_a_relative_latency_refers_to_the_measured_model():
    assert caps("25% latency", lambda: 8.0) == [("latency_ms", 2.0)]
    assert "a measured full model, but got '25% latency'; write it in ms" in problem("25% latency")


def test_the_model_is_measured_for_caps_on_latency_only():
    def never():
        raise AssertionError("measured")

    assert caps("50%+50% params", never) == [("flops", 5000), ("params", 60)]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "half", "%", "50%%", "50% of", "12 latency", "12M ms", "12ms params", "12ms flops", "5M latency"),
        *("50%ms", "1,000", "1e3", "nan", "inf", "50%+", "+50%", "50% + + 12ms", "5 0%", "12s", "0x10", "1.2.3"),
        *("9" * 400, "\N{ARABIC-INDIC DIGIT FIVE}%"),
    ],
)
def test_text_that_is_no_budget_names_the_forms(text):
    assert 'write "50%" or "150M" (FLOPs, one multiply-add is one), "50% params"' in problem(text)


@pytest.mark.parametrize("text", ["0", "0%", "-5%", "0.0M", "-3ms", "0 params", "0ms"])
def test_a_budget_of_nothing(text):
    assert f"above 0, but got {text!r}" in problem(text)


@pytest.mark.parametrize("text", ["100%", "100.1%", "250% params"])
def test_a_share_of_all_leaves_nothing_to_search(text):
    assert f"below 100%, but got {text!r}: nothing to search" in problem(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10000", "got 10,000 FLOPs and 10,000 FLOPs"),
        ("2.0G", "got 2,000,000,000 FLOPs and 10,000 FLOPs"),
        ("120 params", "got 120 params and 120 params"),
        ("8ms", "got 8 ms and 8 ms"),
        ("9.5ms", "got 9.5 ms and 8 ms"),
    ],
)
def test_a_cap_at_or_above_the_full_model_leaves_nothing_to_search(text, expected):
    assert f"`budget < full model` must hold, but {expected}: nothing to search; lower" in problem(text, lambda: 8.0)


def test_a_ratio_without_a_percent_sign():
    assert problem("0.5") == "a count must be at least 1, but got '0.5'; for a share write 50%"


@pytest.mark.parametrize("text", ["50%+5000", "50% flops+12ms+2000 macs"])
def test_the_same_cost_twice(text):
    assert problem(text) == f"each cost may be capped once, but {text!r} caps flops 2 times; keep the smaller cap"


def test_all_problems_in_one_message():
    message = problem("200%+half+-1ms")
    assert all(part in message for part in ("'200%'", "'half'", "'-1ms'"))


def test_a_list_of_budgets():
    budgets = parse_budgets("75%, 50%+60 params,25%", SPACE)
    assert [budget.text for budget in budgets] == ["75%", "50%+60 params", "25%"]
    assert [budget.caps[0].limit for budget in budgets] == [7500, 5000, 2500]


@pytest.mark.parametrize("text", ["50%,75%,50 % flops", "50%,75%,5000", "50%+12ms,12 ms+50%"])
def test_a_budget_given_twice(text):
    with pytest.raises(BudgetError, match=r"budgets must differ, but '50%.*' and .* are the same; drop one"):
        parse_budgets(text, SPACE)


@pytest.mark.parametrize("text", ["75%,", ",", "75%;50%"])
def test_a_list_with_something_that_is_no_budget(text):
    with pytest.raises(BudgetError, match="a budget must be a number with its unit"):
        parse_budgets(text, SPACE)


def test_a_list_of_latencies_refers_to_one_measurement():
    times = iter([8.0, 9.0])
    budgets = parse_budgets("50% latency,25% latency", SPACE, full_latency_ms=lambda: next(times))
    assert [budget.caps[0].limit for budget in budgets] == [4.0, 2.0]
