"""The gain of a search in words and as a table, for people who have not followed it."""

from cafenet.common.tables import Shown
from cafenet.pipeline.gain import Gain, Measured
from cafenet.scoring.metrics import in_own_unit

_SHARES = ("accuracy", "token_accuracy")
"""Metrics that are shown in percent."""
_TAKEN = {"after": "widths found", "Uniform": "after (Uniform)"}
"""Names of the rows where the slim model is Uniform."""


def shown_gain(gain: Gain) -> Shown:
    """Return a sentence and the table before / after / Uniform.

    Args:
        gain: The comparison.

    Returns:
        The content, for a terminal or a notebook.
    """
    head = ["model", "FLOPs", "parameters", "latency", "file", f"{gain.metric} (validation)"]
    if gain.num_test is not None:
        head.append(f"{gain.metric} (test)")
    return Shown(sentence(gain), head, [_row(gain, each) for each in gain.models], _foot(gain))


def sentence(gain: Gain) -> str:
    """Return what was gained, in one or two plain sentences.

    Args:
        gain: The comparison.

    Returns:
        The text. If Uniform is the better model, it begins with that.
    """
    before, after = gain.before, gain.after
    slim = "The slim model" if gain.is_finetuned else "The slim model, which was not fine-tuned,"
    cost = (
        f"{slim} needs {after.flops / before.flops:.0%} of the computation and "
        f"{after.params / before.params:.0%} of the parameters of the original"
    )
    reached = f"reaches {_value(gain, _best(gain, after))} {gain.metric} {_where(gain)}"
    if gain.is_trained:
        reached += f", where the original has {_value(gain, _best(gain, before))} ({_points(gain, after, before)})"
    return f"{_choice(gain)}{cost} and {reached}." + _against_other(gain)


def _choice(gain: Gain) -> str:
    """Return which model is better where that is Uniform. The validation data choose; the test data choose nothing."""
    if gain.baseline is None or not gain.is_uniform_better:
        return ""
    found, uniform = gain.found.score, gain.baseline.score
    if gain.metric in _SHARES:
        better = f"{100 * (uniform - found):.2f} points better"
    else:
        better = f"better ({_value(gain, uniform)} beside {_value(gain, found)})"
    better += ' on the validation data. A longer search (effort="thorough") may turn that round. '
    if gain.takes_uniform:
        return f"The slim model has Uniform's widths here: narrowing all layers alike, {gain.uniform}, is {better}"
    return f"Consider the Uniform model (result.uniform), if its latency suits you: it is {better}"


def _against_other(gain: Gain) -> str:
    """Return how the slim model stands beside Uniform, or beside the widths found if it is Uniform itself."""
    if gain.baseline is None:
        return ""
    if gain.takes_uniform:
        value = _value(gain, _best(gain, gain.found))
        return f" The widths found by the search, {gain.uniform}, reach {value}."
    value = _value(gain, _best(gain, gain.baseline))
    return (
        f" Narrowing all layers alike, {gain.uniform}, reaches {value} (the slim model has "
        f"{_points(gain, gain.after, gain.baseline)})."
    )


def _foot(gain: Gain) -> str:
    """Return what the numbers do not say."""
    notes = ["One training each, so small differences may be chance."] if gain.is_finetuned else []
    if gain.after.latency_range_ms is not None:
        notes.append("Latency: median (quartiles), all models in turns.")
    if gain.metric == "perplexity":
        notes.insert(0, "A lower perplexity is better.")
    if gain.num_test is None:
        notes.append("Widths were chosen on the validation data; test_data= gives a figure on data that chose nothing.")
    if not gain.is_trained:
        notes.append("The original came untrained.")
    return " ".join(notes)


def _row(gain: Gain, each: Measured) -> tuple[str, ...]:
    """Return the cells of one model."""
    name = _TAKEN.get(each.name, each.name) if gain.takes_uniform else each.name
    cells = (name, *costs_of(each), _value(gain, each.score))
    return cells if each.test_score is None else (*cells, _value(gain, each.test_score))


def costs_of(each: Measured) -> tuple[str, str, str, str]:
    """Return the costs of a model as short texts.

    Args:
        each: The model.

    Returns:
        FLOPs, parameters, latency and size of the file.
    """
    latency = latency_in_words(each.latency_ms, each.latency_range_ms)
    return count(each.flops), count(each.params), latency, f"{count(each.file_bytes)}B"


def latency_in_words(median_ms: float, quartiles_ms: tuple[float, float] | None) -> str:
    """Return a latency as text: 1.2 ms, or 1.2 ms (1.18-1.25) with the quartiles.

    Args:
        median_ms: The median.
        quartiles_ms: The quartiles, if they are known.

    Returns:
        The text.
    """
    spread = "" if quartiles_ms is None else f" ({quartiles_ms[0]:.3g}-{quartiles_ms[1]:.3g})"
    return f"{median_ms:.3g} ms{spread}"


def count(number: float) -> str:
    """Return a count with a unit: 5,532,544 is 5.53M.

    Args:
        number: The count.

    Returns:
        The text.
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def _best(gain: Gain, each: Measured) -> float:
    """Return the score that counts: on the test data if there are any."""
    return each.score if each.test_score is None else each.test_score


def _where(gain: Gain) -> str:
    if gain.num_test is not None:
        return f"on {gain.num_test:,} test examples"
    return f"on {gain.num_validation:,} validation examples"


def _value(gain: Gain, value: float) -> str:
    return f"{value:.2%}" if gain.metric in _SHARES else f"{in_own_unit(gain.metric, value):.4g}"


def _points(gain: Gain, one: Measured, other: Measured) -> str:
    """Return a difference of scores: in points where they are shares, in its own unit if it is a perplexity."""
    here, there = (in_own_unit(gain.metric, _best(gain, each)) for each in (one, other))
    if gain.metric in _SHARES:
        return f"{100 * (here - there):+.2f} points"
    if gain.metric == "perplexity" and here != there:
        return f"{here - there:+.4g}, {'better' if here < there else 'worse'}"
    return f"{here - there:+.4g}"
