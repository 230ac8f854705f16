"""The table of finished models: what they cost, how well they do, and how they differ."""

from cafenet.common.statistics import in_words
from cafenet.pipeline.gain_text import count, latency_in_words
from cafenet.report.html import cards, folded, text
from cafenet.report.kinds import OWN
from cafenet.report.models import Model, Models
from cafenet.report.run_records import RunRecord

_MOST_LINES = 4
"""Differences that stand below the table; more of them are folded."""
HEAD = ("model", "accuracy", "FLOPs", "parameters", "latency", "file")


def results_html(run: RunRecord, models: Models) -> str:
    """Return the table with the differences below it.

    Args:
        run: The records of the run.
        models: Its finished models.

    Returns:
        The HTML.
    """
    has_both = any(each.tests for each in models.models) and any(each.validation is not None for each in models.models)
    head = ["model", _title(models), *(["validation"] if has_both else []), *HEAD[2:]]
    rows = [
        (f"{each.kind} ours" if each.kind == OWN else each.kind, _cells(models, each, has_both))
        for each in models.models
    ]
    rows += [("published", _published(each, has_both)) for each in (run.results or {}).get("reference", [])]
    if not any(each.file_bytes for each in models.models):
        head, rows = head[:-1], [(kind, cells[:-1]) for kind, cells in rows]
    differences = _differences(models)
    lines = "".join(f"<br>{text(each)}." for each in differences)
    note = f'<p class="note">{text(_note(models))}{lines if len(differences) <= _MOST_LINES else ""}</p>'
    table = f"<section><h2>Before, after and baselines</h2>{cards(head, rows)}{note}</section>"
    if len(differences) <= _MOST_LINES:
        return table
    items = "".join(f"<li>{text(each)}</li>" for each in differences)
    return table + folded(f"All {len(differences)} differences, with intervals", f"<ul>{items}</ul>")


def _title(models: Models) -> str:
    """Return the title of the column of scores."""
    return f"{models.metric} ({models.data.partition(' ')[0]})"


def _cells(models: Models, each: Model, has_both: bool) -> list[str]:
    """Return the cells of one model."""
    validation = "" if each.validation is None else models.shown(each.validation)
    whole = models.original
    share = f" ({each.flops / whole.flops:.0%})" if whole is not None and whole is not each else ""
    return [
        each.name,
        models.spread(each.scores),
        *([validation] if has_both else []),
        count(each.flops) + share,
        count(each.params),
        latency_in_words(each.latency_ms, each.latency_range_ms),
        f"{count(each.file_bytes)}B" if each.file_bytes else "",
    ]


def _published(each: dict[str, str], has_both: bool) -> list[str]:
    """Return the cells of a row that was published elsewhere."""
    name = f"{each['method']} {each['budget']} (published)".replace("  ", " ")
    return [name, each["accuracy"], *([""] if has_both else []), each["flops"], each["params"], "", ""]


def _differences(models: Models) -> list[str]:
    """Return the differences of CafeNet's models from the others, with their intervals."""
    found = []
    for own in models.own:
        others = [each for each in models.models if each is not own and each.budget in ("", own.budget)]
        for other in (each for each in others if each.kind != own.kind):
            is_fair = other.budget or models.gain is None or models.gain.is_trained
            difference = models.difference(own, other) if is_fair else None
            if difference is not None and difference.num_pairs > 1:
                found.append(f"{own.method} - {other.method} at {own.budget}: {in_words(difference)}")
    return found


def _note(models: Models) -> str:
    """Return what the numbers mean and do not say."""
    num_seeds = max(len(each.scores) for each in models.models)
    words = "One multiply-add is one FLOP. "
    if models.gain is None:
        words += "Accuracy on the test data after the last epoch"
        several = f", mean ± standard deviation of {num_seeds} seeds." if num_seeds > 1 else ""
        return words + (several or "; a single seed is no evidence of a difference.")
    if models.gain.baseline is not None:
        words += f"Uniform narrows all layers alike, {models.gain.uniform}. "
    if models.gain.is_finetuned:
        words += "One training each, so small differences may be chance."
    else:
        words += "The slim model was not fine-tuned."
    if models.gain.after.latency_range_ms is not None:
        words += " Latency: median (quartiles), all models in turns."
    if models.gain.num_test is None:
        words += " Widths were chosen on the validation data."
    return words + ("" if models.gain.is_trained else " The original came untrained.")
