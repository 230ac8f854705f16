"""Budgets: inclusive caps on costs, written as people say them.

Smallest examples, for a model of 300M FLOPs (one multiply-add is one) and 3.5M parameters: "50%" and "150M" are the
same cap on FLOPs; "50% params" allows 1.75M parameters; "50%+2M params+12ms" must hold all three.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from cafenet.errors import BudgetError
from cafenet.space.width_space import WidthSpace

CostName: TypeAlias = Literal["flops", "params", "latency_ms"]

UNITS: dict[CostName, str] = {"flops": "FLOPs", "params": "params", "latency_ms": "ms"}
"""What costs are counted in, as printed."""

_FORMS = (
    'write "50%" or "150M" (FLOPs, one multiply-add is one), "50% params" or "1.5M params", "12ms" or "50% latency", '
    'and "+" between caps that must all hold'
)
_PART = re.compile(
    r"(?P<number>-?(\d{1,18}(\.\d*)?|\.\d+))\s*((?P<unit>%|ms|[kmgbt])\s*)?"
    r"(?P<cost>(?P<flops>flops?|macs?)|(?P<params>param(eter)?s?)|(?P<latency_ms>latency))?",
    re.ASCII,
)
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Cap:
    """The most that one cost may be: `Cap("flops", 150e6)`."""

    cost: CostName
    limit: float

    def __str__(self) -> str:
        return f"{self.limit:,.12g} {UNITS[self.cost]}"


@dataclass(frozen=True)
class Budget:
    """Caps that must all hold, and the text that they were written as."""

    text: str
    caps: tuple[Cap, ...]
    is_on_the_way: bool = False
    """To the budget that was asked for, as in a stage that is not the last: no latency is measured for it."""

    @property
    def is_measured(self) -> bool:
        """Whether a result must keep a latency when it is measured."""
        return not self.is_on_the_way and any(cap.cost == "latency_ms" for cap in self.caps)


def parse_budget(text: str, space: WidthSpace, *, full_latency_ms: Callable[[], float] | None = None) -> Budget:
    """The caps that a text means for a model; "50%" of 300M FLOPs is `Cap("flops", 150e6)`.

    full_latency_ms: measures the full model; called only for a cap on latency. Without it a latency must be absolute,
    and is not compared with the full model's.
    """
    if not isinstance(text, str):
        raise BudgetError(f"a budget must be a text, but is {text!r}; {_FORMS}")
    full = {"flops": space.flops, "params": space.params, "latency_ms": full_latency_ms}
    caps, problems = [], []
    for part in text.split("+"):
        try:
            caps.append(_cap(part.strip(), full))
        except BudgetError as error:
            problems.append(str(error))
    costs = [cap.cost for cap in caps]
    problems += [
        f"each cost may be capped once, but {text!r} caps {cost} {costs.count(cost)} times; keep the smaller cap"
        for cost in dict.fromkeys(costs)
        if costs.count(cost) > 1
    ]
    if problems:
        raise BudgetError("; ".join(problems))
    return Budget(text.strip(), tuple(caps))


def parse_budgets(text: str, space: WidthSpace, *, full_latency_ms: Callable[[], float] | None = None) -> list[Budget]:
    """Several budgets, separated by commas: "75%,50%,25%". The full model's latency is measured once for all."""
    measured = functools.cache(full_latency_ms) if full_latency_ms else None
    budgets = [parse_budget(part, space, full_latency_ms=measured) for part in text.split(",")]
    expect_different(budgets)
    return budgets


def expect_different(budgets: Sequence[Budget]) -> None:
    """Refuse two budgets that mean the same."""
    first: dict[frozenset[Cap], Budget] = {}
    for budget in budgets:
        other = first.setdefault(frozenset(budget.caps), budget)
        if other is not budget:
            raise BudgetError(f"budgets must differ, but {other.text!r} and {budget.text!r} are the same; drop one")


def _cap(part: str, full: Mapping[str, Callable[[], float] | None]) -> Cap:
    """One cap. Numbers are fractions until the end, so that 29% of 100 is 29 and not a little less."""
    match = _PART.fullmatch(part.lower())
    cost = _cost(match) if match else None
    if match is None or cost is None:
        raise BudgetError(f"a budget must be a number with its unit, but got {part!r}; {_FORMS}")
    number, unit, measure = Fraction(match["number"]), match["unit"], full[cost]
    if number <= 0:
        raise BudgetError(f"a budget must be above 0, but got {part!r}; {_FORMS}")
    if unit == "%":
        if number >= 100:
            raise BudgetError(f"a relative budget must be below 100%, but got {part!r}: nothing to search; lower it")
        if measure is None:
            raise BudgetError(f"a relative latency needs a measured full model, but got {part!r}; write it in ms")
        return Cap(cost, float(number / 100 * Fraction(measure())))
    if cost != "latency_ms" and number * _FACTORS.get(unit, 1) < 1:
        raise BudgetError(f"a count must be at least 1, but got {part!r}; for a share write {float(number * 100):g}%")
    cap, most = Cap(cost, float(number * _FACTORS.get(unit, 1))), math.inf if measure is None else measure()
    if cap.limit >= most:
        raise BudgetError(
            f"`budget < full model` must hold, but got {cap} and {Cap(cost, most)}: nothing to search; lower the budget"
        )
    return cap


def _cost(match: re.Match[str]) -> CostName | None:
    """What the words cap: FLOPs where nothing is said; None where unit and words contradict each other."""
    if match["latency_ms"]:
        return "latency_ms" if match["unit"] in ("%", "ms") else None
    if match["unit"] == "ms":
        return None if match["cost"] else "latency_ms"
    return "params" if match["params"] else "flops"
