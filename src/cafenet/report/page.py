"""The page: one self-contained HTML file, for phones and dark rooms too."""

import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib import rc_context
from matplotlib.figure import Figure

from cafenet.report.figures import all_figures, duration
from cafenet.report.records import RunRecord, read_run
from cafenet.runs.directory import write_text
from cafenet.runs.results import Row, claims, count

TITLES = {
    "widths": ("Width kept per layer group", "Layers whose channels are decided together are one group, named after "
               "the first of them. Pale bars are the full width."),
    "accuracy-flops": ("Accuracy against FLOPs", "Every width that was scored in full; point at a dot to see it."),
    "progress": ("Search progress", "Dots are scores, lines the best so far. Dropped widths show their estimate."),
    "histogram": ("Scores of all widths", "The further right, the better the widths that a search looks at."),
    "training": ("Supernet training", "The loss of whatever width was sampled, so it is noisy; the line is smoothed."),
    "bins": ("Bins", "Channels are added and dropped in bins; cheap channels go in larger ones."),
    "time": ("Time spent", "Summed over all starts of this run."),
    "attributes": ("Attributes against Uniform", "Points of test accuracy, attribute by attribute."),
}  # fmt: skip

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --line: #d5dbe2; --soft: #f3f5f8; --pick: #c22a4e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --paper: #14181e; --line: #343c47; --soft: #1d232b; --pick: #ff7a98; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, td.text { text-align: left; white-space: normal; }
tr.own td { font-weight: 600; } tr.published td { opacity: 0.65; }
.verdict { background: var(--soft); border-left: 4px solid var(--pick); padding: 0.7rem 1rem; }
.missing { border-left: 4px solid var(--line); padding: 0.4rem 1rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; } figcaption { font-size: 0.85rem; opacity: 0.75; }
pre { overflow-x: auto; background: var(--soft); padding: 0.8rem; font-size: 0.8rem; }
details > summary { cursor: pointer; } [id^="tip:"]:hover { opacity: 0.6; }
"""


def write_report(directory: Path) -> Path:
    """Write `report.html` into a run directory and return its path."""
    path = directory / "report.html"
    write_text(path, report_html(read_run(directory)))
    return path


def save_figures(directory: Path, target: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write every figure of a run as files fit for a paper."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in all_figures(read_run(directory)).items():
        for each in formats:
            written.append(target / f"{name}.{each}")
            figure.savefig(written[-1], dpi=300)
    return written


def report_html(run: RunRecord) -> str:
    """The page of a run."""
    figures = all_figures(run)
    parts = [
        f"<h1>{_text(run.recipe.get('description') or run.name)}</h1>",
        _verdict(run),
        *(f'<p class="missing">Not there yet: {_text(line)}.</p>' for line in run.missing()),
        _table(run),
        *(_figure(name, figure) for name, figure in figures.items()),
        _frozen(run),
        _recipe(run),
    ]
    title = _text(f"CafeNet: {run.name}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def rows_of(run: RunRecord) -> list[Row]:
    """The rows of a run's table, none where there is none yet."""
    return [Row(**{**row, "accuracies": tuple(row["accuracies"])}) for row in (run.results or {}).get("rows", [])]


def _verdict(run: RunRecord) -> str:
    rows = rows_of(run)
    own = [row for row in rows if row.method.startswith("CafeNet")]
    original = next((row for row in rows if not row.budget), None)
    lines = []
    for row in own:
        kept = f"{row.flops:,} FLOPs, {row.params:,} parameters, {row.latency_ms:.2f} ms"
        before = f" (before: {original.flops:,}, {original.params:,}, {original.latency_ms:.2f} ms)" if original else ""
        lines.append(
            f"<b>{_text(row.method)} at {_text(row.budget)}: {row.accuracy}</b> on the test set; {kept}{before}."
        )
    lines += [_text(line) + "." for line in claims(rows)]
    return f'<div class="verdict">{"<br>".join(lines)}</div>' if lines else ""


def _table(run: RunRecord) -> str:
    rows = rows_of(run)
    if not rows:
        return ""
    num_seeds = len(rows[0].accuracies)
    head = "".join(f"<th>{name}</th>" for name in ("method", "budget", "FLOPs", "params", "latency", "accuracy"))
    body = [
        _tr(
            [
                row.method,
                row.budget or "-",
                count(row.flops),
                count(row.params),
                f"{row.latency_ms:.2f} ms",
                row.accuracy,
            ],
            "own" if row.method.startswith("CafeNet") else "",
        )
        for row in rows
    ]
    for each in (run.results or {}).get("reference", []):
        published = [f"{each['method']} (published)", each["budget"] or "-", each["flops"], each["params"], ""]
        body.append(_tr([*published, each["accuracy"]], "published"))
    note = f"Test accuracy after the last epoch, {num_seeds} seed{'s' if num_seeds > 1 else ''}"
    note += " (mean ± standard deviation)." if num_seeds > 1 else "; one seed is no evidence of a difference."
    return f'<h2>Results</h2><div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div><p>{note}</p>'


def _figure(name: str, figure: Figure) -> str:
    title, caption = TITLES[name]
    return f'<h2>{title}</h2><figure id="figure-{name}">{_svg(figure)}<figcaption>{caption}</figcaption></figure>'


def _svg(figure: Figure) -> str:
    """The figure as inline SVG that takes the page's colours; shapes named `tip:TEXT` tell it when pointed at."""
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cafenet", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r"<text ", '<text fill="currentColor" ', svg)
    return re.sub(r'<g id="tip:([^"]*)">', r'<g class="tip"><title>\1</title>', svg)


def _frozen(run: RunRecord) -> str:
    frozen = (run.space or {}).get("frozen", [])
    if not frozen:
        return ""
    rows = "".join(_tr([each["name"], str(each["channels"]), each["reason"]], "", text=(2,)) for each in frozen)
    head = "<tr><th>layer</th><th>channels</th><th>reason</th></tr>"
    return f'<h2>What was frozen, and why</h2><div class="wide"><table>{head}{rows}</table></div>'


def _recipe(run: RunRecord) -> str:
    manifest = run.manifest
    facts = {
        key: manifest.get(key) for key in ("started", "finished", "git_revision", "versions", "hardware", "seconds")
    }
    total = sum((manifest.get("seconds") or {}).values())
    command = f"cafenet run recipe.yaml --output {run.name}"
    recipe = _text(yaml.safe_dump(run.recipe, sort_keys=False))
    return (
        f"<h2>Reproduce it</h2><p>Save the recipe below as recipe.yaml; this run took {duration(total)} in all.</p>"
        f"<pre>{_text(command)}</pre><details><summary>recipe.yaml</summary><pre>{recipe}</pre></details>"
        f"<details><summary>versions, hardware, times</summary><pre>{_text(json.dumps(facts, indent=1))}</pre>"
        "</details>"
    )


def _tr(cells: Iterable[str], kind: str, text: tuple[int, ...] = ()) -> str:
    inside = "".join(
        f"<td{' class=text' if number in text else ''}>{_text(cell)}</td>" for number, cell in enumerate(cells)
    )
    return f"<tr{f' class={kind}' if kind else ''}>{inside}</tr>"


def _text(value: Any) -> str:
    return html.escape(str(value))
