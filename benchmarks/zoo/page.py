"""The results of the zoo as Markdown: how it was measured, the summary, one row a model."""

import math
from collections.abc import Iterable

from benchmarks.zoo.results_file import Results
from benchmarks.zoo.tool import Facts

PEERS = {"torch-pruning": "Torch-Pruning", "modelopt": "ModelOpt"}
REFERENCE = "densenet201"
CHECKED = "verified_trace_seconds"
LEFT = ("left_at_half", "smallest")
HOW = """Seconds are the median of {num_runs} runs in one process and one thread, after the tool was used once on a
small network so that imports are not counted; an analysis of more than {single_run_above_seconds:g} s is run once.
Every model meets every tool in a process of its own, tools interleaved per model, with {memory_gb:g} GB of memory and
{limit:g} s for each step.

- **bare**: the model itself, run once on meta tensors.
- **CafeNet**: `cafenet.trace(model, image, verify=False)`; *checked* is one run with `verify=True`, the default. A
  model counts as handled if it has width groups and `cafenet.verify` agrees on real values, twice at random widths: the
  run in place, the extracted model and, where nothing normalises over the channels, the full model with the dropped
  channels zeroed give the same output, and FLOPs and params equal a count on the extracted model. Error: the largest
  relative difference.
- **Torch-Pruning**: `DependencyGraph().build_dependency` and all groups of `get_all_groups`; it runs the model on real
  values. A model counts as handled if `BasePruner` removes half of the channels and the pruned model runs.
- **ModelOpt**: `modelopt.torch.nas.convert(model, mode="fastnas")`. A model counts as handled if the smallest subnet is
  exported and runs.

FLOPs count one multiply-add as one; the searchable share lies in ops that some width group reads or writes. Left at
half: the share of the FLOPs if every width group keeps half of its units, rounded up; smallest: if each keeps as few as
it may."""
OLD_ROWS = """Rows without *left at half* were measured before attention heads and the residual stream of transformers
were width groups; for transformers their groups, searchable shares and seconds are out of date. What is left of
transformers now, of named lists of timm and Hugging Face too, stands in [Heads and their sizes](heads.md).
`python -m benchmarks.zoo --fresh` measures all rows again, and
`python -m benchmarks.zoo --models vit_b_16 --skip-peers --output build/zoo.json` measures one model."""


def markdown(results: Results, command: str) -> str:
    """The whole page."""
    versions = ", ".join(f"{package} {version}" for package, version in results.header["versions"].items())
    parts = ["# The zoo", f"    {command}", versions + ".", HOW.format(**results.header["settings"])]
    parts += [OLD_ROWS] if _has_old_rows(results) else []
    parts += ["## Summary", *_tables(results), "## Models", _models_table(results), _failures(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _has_old_rows(results: Results) -> bool:
    rows = [results.get(model, "cafenet") or {} for model in results.models()]
    return any(row.get("ok") and LEFT[0] not in row for row in rows)


def _tables(results: Results) -> Iterable[str]:
    tools = _tools(results)
    handled = [[name, _handled(results, tool), _slowest(results, tool)] for tool, name in tools.items()]
    yield _table(["tool", "models handled", "slowest analysis"], handled)
    rows = [_ratio_row("CafeNet / bare", _ratios(results, ("cafenet", "seconds"), ("bare", "seconds")))]
    rows += [_ratio_row("CafeNet, checked / bare", _ratios(results, ("cafenet", CHECKED), ("bare", "seconds")))]
    for tool in (tool for tool in tools if tool in PEERS):
        for ours, key in (("CafeNet", "seconds"), ("CafeNet, checked", CHECKED)):
            rows.append(_ratio_row(f"{PEERS[tool]} / {ours}", _ratios(results, (tool, "seconds"), ("cafenet", key))))
    yield _table(
        ["time ratio, where both handle the model", "models", "geometric mean", "least", "most", REFERENCE], rows
    )


def _ratios(results: Results, upper: tuple[str, str], lower: tuple[str, str]) -> dict[str, float]:
    """Seconds of one (tool, key) over those of another, by model, where both tools handle it."""
    ratios = {}
    for model in results.models():
        above, below = results.get(model, upper[0]), results.get(model, lower[0])
        if above and below and above["ok"] and below["ok"]:
            ratios[model] = above[upper[1]] / below[lower[1]]
    return ratios


def _ratio_row(name: str, ratios: dict[str, float]) -> list[str]:
    if not ratios:
        return [name, "0", "-", "-", "-", "-"]
    low, high = min(ratios, key=lambda m: ratios[m]), max(ratios, key=lambda m: ratios[m])
    spread = [f"{ratios[model]:.2f} ({model})" for model in (low, high)]
    reference = f"{ratios[REFERENCE]:.2f}" if REFERENCE in ratios else "-"
    return [name, str(len(ratios)), f"{_geometric_mean(ratios.values()):.2f}", *spread, reference]


def _handled(results: Results, tool: str) -> str:
    rows = [row for model in results.models() if (row := results.get(model, tool))]
    return f"{sum(row['ok'] for row in rows)} of {len(rows)}"


def _slowest(results: Results, tool: str) -> str:
    timed = [
        (row["seconds"], model) for model in results.models() if "seconds" in (row := results.get(model, tool) or {})
    ]
    return f"{max(timed)[0]:.2f} s ({max(timed)[1]})" if timed else "-"


def _tools(results: Results) -> dict[str, str]:
    peers = {tool: name for tool, name in PEERS.items() if any(results.get(model, tool) for model in results.models())}
    return {"cafenet": "CafeNet", **peers}


def _models_table(results: Results) -> str:
    peers = [tool for tool in _tools(results) if tool in PEERS]
    head = ["model", "image", "bare s", "CafeNet s", "checked s", "groups", "searchable"]
    head += ["left at half", "smallest", "error", "real values on"]
    rows = []
    for model in results.models():
        bare, ours = (results.get(model, tool) or {} for tool in ("bare", "cafenet"))
        row = [model, str(ours.get("image_size", "-")), _seconds(bare), _seconds(ours)]
        row += [_seconds(ours, CHECKED), str(ours.get("num_groups", "-")), *_proof(ours)]
        rows.append(row + [cell for tool in peers for cell in _peer_cells(results.get(model, tool) or {})])
    return _table(head + [f"{PEERS[tool]} {what}" for tool in peers for what in ("s", "groups")], rows)


def _proof(ours: Facts) -> list[str]:
    shares = [f"{ours[key]:.1%}" if key in ours else "-" for key in ("searchable_flops_share", *LEFT)]
    if not ours.get("ok"):
        return [*shares, "**fails**", "-"]
    error = max(ours["max_extract_error"], ours["max_masked_error"])
    depth = ", two blocks a stage" if ours["shallow"] else ""
    return [*shares, f"{error:.0e}", f"{ours['checked_size']} px, {ours['checked_dtype']}{depth}"]


def _peer_cells(facts: Facts) -> list[str]:
    return [_seconds(facts) if facts.get("ok") else "fails", str(facts.get("num_groups", "-"))]


def _seconds(facts: Facts, key: str = "seconds") -> str:
    return f"{facts[key]:.2f}" if key in facts else "-"


def _failures(results: Results) -> str:
    names = {"bare": "Bare run", **_tools(results)}
    rows = []
    for tool, name in names.items():
        for model in results.models():
            row = results.get(model, tool)
            if row and not row["ok"]:
                rows.append([name, model, _seconds(row), row["error"].replace("|", "\\|")])
    return "## Failures\n\n" + _table(["tool", "model", "analysis s", "first line of the error"], rows) if rows else ""


def _geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
