"""The latencies that a search began with. A second start uses them again, so that it finds the same widths."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import LATENCIES
from cafenet.common.write_files import write_file
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.space.width_space import WidthSpace


def latencies_before(
    directory: Path, budget: str, space: WidthSpace, settings: LatencyConfig
) -> dict[str, float] | None:
    """Return the latencies that an earlier search of this model for this budget measured first.

    Args:
        directory: Directory of the search.
        budget: The budget as the user wrote it.
        space: The width space of the model.
        settings: Options of the latency measurement.

    Returns:
        The cap on latency (`limit_ms`) and the latency of the full model (`full_ms`), or None if the directory holds
        none for the same budget, model and options.
    """
    before = read_if_there(LATENCIES, directory) or {}
    measured: dict[str, float] | None = before.get("measured")
    return measured if before.get("asked") == _asked_latencies(budget, space, settings) else None


def _asked_latencies(budget: str, space: WidthSpace, settings: LatencyConfig) -> dict[str, Any]:
    """Return the request that measured latencies belong to. Another request measures again."""
    model = {"flops": int(space.flops()), "params": int(space.params()), "widths": dict(space.full_widths)}
    asked: dict[str, Any] = json.loads(json.dumps({"budget": budget, "settings": settings.made_with(), "model": model}))
    return asked


def as_measured_first(
    budget: Budget, full_costs: Mapping[str, float], space: WidthSpace, settings: LatencyConfig, directory: Path
) -> tuple[Budget, Mapping[str, float]]:
    """Replace the latencies by those that the directory holds, because other ones would lead to other widths.

    A directory that holds none gets the given ones.

    Args:
        budget: The budget of the search.
        full_costs: Costs of the full model by name, for every cost that the budget caps.
        space: The width space of the model.
        settings: Options of the latency measurement.
        directory: Directory of the search.

    Returns:
        The budget and the costs of the full model, both unchanged if no latency is capped.
    """
    limit_ms = next((cap.limit for cap in budget.caps if cap.cost == "latency_ms"), None)
    if limit_ms is None:
        return budget, full_costs
    measured = latencies_before(directory, budget.text, space, settings)
    if measured is None:
        measured = {"limit_ms": limit_ms, "full_ms": full_costs["latency_ms"]}
        asked = _asked_latencies(budget.text, space, settings)
        write_file(LATENCIES, directory, {"asked": asked, "measured": measured})
    caps = tuple(Cap(cap.cost, measured["limit_ms"] if cap.cost == "latency_ms" else cap.limit) for cap in budget.caps)
    return replace(budget, caps=caps), {**full_costs, "latency_ms": measured["full_ms"]}
