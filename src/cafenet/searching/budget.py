"""Budgets: inclusive upper limits on costs, written the way people say them.

Smallest examples, for a model of 300M FLOPs (one multiply-add counts as one) and 3.5M parameters: "50%" and "150M" are
the same cap on FLOPs; "50% params" allows 1.75M parameters; "50%+2M params+12ms" must meet all three caps. "500KB" is a
cap on the file that the runtime opens; a KB are 1,000 bytes, a KiB 1,024.
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

CostName: TypeAlias = Literal["flops", "params", "latency_ms", "file_bytes"]

UNITS: dict[CostName, str] = {"flops": "FLOPs", "params": "params", "latency_ms": "ms", "file_bytes": "bytes"}
"""Printed unit of each cost."""

COUNTED: tuple[CostName, ...] = ("flops", "params")
"""Costs that are known without measuring or writing a file."""

_FORMS = (
    'write "50%" or "150M" (FLOPs, one multiply-add is one), "50% params" or "1.5M params", "12ms" or "50% latency", '
    '"500KB" or "50% file", and "+" between caps that must all hold'
)
_PART = re.compile(
    r"(?P<number>-?(\d{1,18}(\.\d*)?|\.\d+))\s*((?P<unit>%|ms|[kmg]i?b|[kmgbt])\s*)?"
    r"(?P<cost>(?P<flops>flops?|macs?)|(?P<params>param(eter)?s?)|(?P<latency_ms>latency)"
    r"|(?P<file_bytes>file))?",
    re.ASCII,
)
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Cap:
    """Upper limit of one cost, for example `Cap("flops", 150e6)`. The limit itself is allowed."""

    cost: CostName
    """The cost that is limited: "flops", "params", "latency_ms" or "file_bytes"."""
    limit: float
    """The largest allowed value, in multiply-adds, parameters, milliseconds or bytes."""

    def __str__(self) -> str:
        return f"{self.limit:,.12g} {UNITS[self.cost]}"


@dataclass(frozen=True)
class Budget:
    """Caps that must all hold, together with the text that they were written as."""

    text: str
    """The budget as the user wrote it, for example "50%+2M params"."""
    caps: tuple[Cap, ...]
    """The caps; a width vector meets the budget if it meets each of them."""
    is_on_the_way: bool = False
    """True for the budget of an intermediate stage of a search. No latency is measured for it."""

    @property
    def is_measured(self) -> bool:
        """True if a result must meet a cap when it is measured or written."""
        return not self.is_on_the_way and any(cap.cost not in COUNTED for cap in self.caps)


def parse_budget(
    text: str,
    space: WidthSpace,
    *,
    full_latency_ms: Callable[[], float] | None = None,
    full_file_bytes: Callable[[], float] | None = None,
) -> Budget:
    """Read one budget, for example "50%" of 300M FLOPs as `Cap("flops", 150e6)`.

    Args:
        text: The budget: "50%", "150M", "50% params", "12ms", or several caps joined by "+".
        space: The width space of the full model, to which percentages refer.
        full_latency_ms: Measures the latency of the full model. It is called only if the text has a cap on latency.
            Without it, a latency must be absolute and is not compared with that of the full model.
        full_file_bytes: Writes the file of the full model and returns its size, likewise.

    Returns:
        The budget with its caps in absolute numbers.

    Raises:
        BudgetError: If the text is no budget, a cap is not below the cost of the full model, or a cost is capped twice.
    """
    if not isinstance(text, str):
        raise BudgetError(f"a budget must be a text, but is {text!r}; {_FORMS}")
    full: dict[str, Callable[[], float] | None] = {
        "flops": space.flops,
        "params": space.params,
        "latency_ms": full_latency_ms,
    }
    full["file_bytes"] = full_file_bytes
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


def parse_budgets(
    text: str,
    space: WidthSpace,
    *,
    full_latency_ms: Callable[[], float] | None = None,
    full_file_bytes: Callable[[], float] | None = None,
) -> list[Budget]:
    """Read several budgets separated by commas, for example "75%,50%,25%".

    Args:
        text: The budgets, each as `parse_budget` reads it.
        space: The width space of the full model, to which percentages refer.
        full_latency_ms: Measures the latency of the full model; called at most once for all budgets.
        full_file_bytes: Writes the file of the full model and returns its size; called at most once, too.

    Returns:
        The budgets in the order of the text.

    Raises:
        BudgetError: If it is no text, a budget in it cannot be read, or two of them mean the same caps.
    """
    if not isinstance(text, str):
        raise BudgetError(f'a budget must be a text such as "50%", but is {text!r}')
    measured = functools.cache(full_latency_ms) if full_latency_ms else None
    written = functools.cache(full_file_bytes) if full_file_bytes else None
    budgets = [parse_budget(part, space, full_latency_ms=measured, full_file_bytes=written) for part in text.split(",")]
    expect_different(budgets)
    return budgets


def costs_in(text: str) -> set[CostName]:
    """Find the costs that budgets cap, without a model.

    Args:
        text: One or several budgets, as `parse_budgets` reads them.

    Returns:
        The costs; parts that are no budget have none.

    Example:
        >>> from cafenet.searching.budget import costs_in
        >>> sorted(costs_in("50%+1.5M params, 12ms"))
        ['flops', 'latency_ms', 'params']
    """
    found = [_PART.fullmatch(part.strip().lower()) for part in re.split(r"[+,]", text)]
    costs = [_cost(match) for match in found if match is not None]
    return {cost for cost in costs if cost is not None}


def expect_different(budgets: Sequence[Budget]) -> None:
    """Check that no two budgets mean the same caps.

    Args:
        budgets: The budgets of one search.

    Raises:
        BudgetError: If two budgets have the same caps.
    """
    first: dict[frozenset[Cap], Budget] = {}
    for budget in budgets:
        other = first.setdefault(frozenset(budget.caps), budget)
        if other is not budget:
            raise BudgetError(f"budgets must differ, but {other.text!r} and {budget.text!r} are the same; drop one")


def _cap(part: str, full: Mapping[str, Callable[[], float] | None]) -> Cap:
    """Read one cap. Numbers stay fractions until the end, so that 29% of 100 is 29 and not a little less."""
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
            raise BudgetError(
                f"a relative {'latency' if cost == 'latency_ms' else 'file size'} needs a measured full model, but got "
                f"{part!r}; write it in {'ms' if cost == 'latency_ms' else 'KB'}"
            )
        return Cap(cost, float(number / 100 * Fraction(measure())))
    factor = _BYTES[unit] if unit in _BYTES else _FACTORS.get(unit, 1)
    if cost != "latency_ms" and number * factor < 1:
        raise BudgetError(f"a count must be at least 1, but got {part!r}; for a share write {float(number * 100):g}%")
    cap, most = Cap(cost, float(number * factor)), math.inf if measure is None else measure()
    if cap.limit >= most:
        raise BudgetError(
            f"`budget < full model` must hold, but got {cap} and {Cap(cost, most)}: nothing to search; lower the budget"
        )
    return cap


def _cost(match: re.Match[str]) -> CostName | None:
    """Return the cost that the words name (FLOPs if they name none), or None if unit and words contradict each
    other."""
    if match["file_bytes"] or match["unit"] in _BYTES:
        is_other = match["flops"] or match["params"] or match["latency_ms"]
        return "file_bytes" if not is_other and match["unit"] in ("%", *_BYTES) else None
    if match["latency_ms"]:
        return "latency_ms" if match["unit"] in ("%", "ms") else None
    if match["unit"] == "ms":
        return None if match["cost"] else "latency_ms"
    return "params" if match["params"] else "flops"
