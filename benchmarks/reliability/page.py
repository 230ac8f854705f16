"""docs/reliability.md, made of the outcomes."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from benchmarks.common.results_file import Results

PARTS = ("kills", "signals", "damaged", "inputs", "hostile", "models")
MOST_LISTED = 40
"""Defects that the page names one by one; the rest is in results.json."""
HEAD = """# Reliability

Made by `make bench-reliability` (`python -m benchmarks.reliability`, which says how to restart it and how to try single
cases). Every case runs in a process of its own with a time limit; outcomes in *italics* are defects.
"""
ABOUT = {
    "kills": """\
Tiny jobs of a few seconds are killed with `kill -9` at random moments and started again until they end. What they end
with must be equal, to the last bit, to what an uninterrupted job ends with: tables, scores of all widths, and the
weights in every checkpoint and slim file.""",
    "signals": """\
The real command gets a SIGINT or a SIGTERM at moments that are spread over all that it does, its imports too. It must
end with exit code 130 or 143 and one line. A search with a helper is killed with `kill -9`: the helper must be gone two
seconds later.""",
    "damaged": """\
Every file of a finished job, and of one that was killed in its last training, is damaged in six ways: cut to half its
length, empty, `{}`, noise, one bit flipped, missing. Then the same command is given again, which must end with the same
result or with a clear line and exit code 2; `cafenet report` and `cafenet compare` must show what is left, and say so.
Of files with the same part in a job, one is damaged.""",
    "inputs": """\
Calls and command lines that cannot work. A call must raise one of CafeNet's own errors, or, where the user's code
raised, that error; a command must end with exit code 2 and one line.""",
    "hostile": """\
Pickles in checkpoints, slim files and data, files that claim or unfold to much more than they hold, names that are
scripts where a page shows them, and requests from other sites to the dashboard.""",
    "models": """\
Models with random weights are looked at by `trace`, `verify`, `extract` and a `trace` whose forward fails in the
middle. Hooks, attributes, parameters, buffers and random states must be as before after each of them, and the outputs
those of a copy that nobody looked at.""",
}


def markdown(results: Results) -> str:
    """The whole page."""
    parts = {name: _part(name) for name in PARTS}
    rows = {name: results.rows(name) for name in PARTS}
    lines = [HEAD, *_summary(parts, rows)]
    for name, part in parts.items():
        if rows[name]:
            lines += ["", f"## {part.title}", "", ABOUT[name], "", f"`{_command(name)}`", "", *_table(part, rows[name])]
            lines += _defects(part, rows[name])
    return "\n".join(lines) + "\n"


def _revisions(rows: Iterable[dict[str, Any]]) -> str:
    """The revisions that some cases were measured at, in their order."""
    return ", ".join(dict.fromkeys(row["revision"] for row in rows))


def _part(name: str) -> Any:
    import importlib

    return importlib.import_module(f"benchmarks.reliability.{name}").PART


def _command(name: str) -> str:
    return f"python -m benchmarks.reliability --parts {name}"


def _summary(parts: dict[str, Any], rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| part | cases | as they should be | defects | minutes | revision | command |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for name, part in parts.items():
        found = rows[name].values()
        if not found:  # no zeros: nothing is known of it
            lines.append(f"| {part.title} | not measured yet | | | | | `{_command(name)}` |")
            continue
        num_bad = sum(row["outcome"] in part.bad for row in found)
        cases = f"{len(rows[name]):,}"
        if name == "kills":
            cases = f"{sum(row['kills'] for row in found):,} kills in {cases} series"
        minutes = sum(row["seconds"] for row in found) / 60
        cells = [part.title, cases, f"{len(rows[name]) - num_bad:,}", f"{num_bad:,}", f"{minutes:.0f}"]
        cells.append(_revisions(found))
        lines.append(f"| {' | '.join(cells)} | `{_command(name)}` |")
    return lines


def _table(part: Any, rows: dict[str, Any]) -> list[str]:
    """One row for each group of cases, one column for each outcome that some case had."""
    counts: dict[str, Counter[str]] = {}
    for row in rows.values():
        counts.setdefault(row["group"], Counter())[row["outcome"]] += 1
    shown = [kind for kind in part.good + part.bad if any(count[kind] for count in counts.values())]
    heads = [f"*{kind}*" if kind in part.bad else kind for kind in shown]
    has_kills = part.name == "kills"
    columns = ["cases", *(["kills", "starts"] if has_kills else []), *heads]
    lines = [f"| what | {' | '.join(columns)} | revision |", f"| --- |{' ---: |' * len(columns)} --- |"]
    for group, count in counts.items():
        inside = [row for row in rows.values() if row["group"] == group]
        numbers = [sum(count.values())]
        numbers += [sum(row[key] for row in inside) for key in (("kills", "starts") if has_kills else ())]
        numbers += [count[kind] for kind in shown]
        lines.append(f"| {group} | {' | '.join(f'{number:,}' for number in numbers)} | {_revisions(inside)} |")
    return lines


def _defects(part: Any, rows: dict[str, Any]) -> list[str]:
    bad = [(name, row) for name, row in rows.items() if row["outcome"] in part.bad]
    if not bad:
        return []
    lines = ["", "| case | outcome | what was said |", "| --- | --- | --- |"]
    lines += [
        f"| `{_cell(name)}` | {row['outcome']} | {_said(row.get('detail', ''))} |" for name, row in bad[:MOST_LISTED]
    ]
    return lines + (
        [f"\n{len(bad) - MOST_LISTED:,} more are in `benchmarks/reliability/results.json`."]
        if bad[MOST_LISTED:]
        else []
    )


def _said(detail: str) -> str:
    return f"`{_cell(detail[:120])}`" if detail else ""


def _cell(text: str) -> str:
    """Text inside a code span of a table."""
    return text.replace("`", "'").replace("|", "\\|").replace("\n", " ")
