"""The top of a page: what was gained, in plain words and numbers, with a picture of the network before and after."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from cafenet.common.verdict_words import beside, headline, share_in_words
from cafenet.pipeline.gain import Gain, Measured
from cafenet.pipeline.gain_text import count, sentence
from cafenet.report.html import text
from cafenet.report.kinds import UNIFORM
from cafenet.report.models import Model, Models
from cafenet.report.width_charts import layers_of, silhouette
from cafenet.searching.budget import costs_in


def verdict_html(models: Models, space: Mapping[str, Any] | None, warnings: Sequence[str]) -> str:
    """Return the top of a page.

    Args:
        models: The finished models.
        space: The content of `space.json`, or None.
        warnings: Warnings of the searches. The verdict then says that nothing can be concluded.

    Returns:
        The HTML, empty if CafeNet has no finished model among them.
    """
    if not models.own:
        return ""
    first, *others = [delivered(models, each) for each in models.own]
    doubt = "".join(f'<p class="doubt">{text(_capital(each))}.</p>' for each in warnings)
    words = "Nothing can be concluded: scores look like chance" if warnings else words_of(models, first)
    also = "".join(f"<p><b>{text(each.name)}:</b> {text(words_of(models, each))}.</p>" for each in others)
    return (
        f'<div class="verdict{" doubtful" if warnings else ""}"><p class="headline">{text(words)}.</p>{doubt}'
        f'<p class="sentence">{text(_sentence(models, first))}</p>'
        f"{_tiles(models, first)}{_picture(space, first)}{also}</div>"
    )


def words_of(models: Models, own: Model) -> str:
    """Return what one model gained, in one line.

    Args:
        models: The finished models.
        own: A slim model.

    Returns:
        The line, without a full stop.
    """
    rival, saved = uniform_of(models, own), _saved(models.original, own)
    if own is rival:
        rival = None
        saved = f"Narrowing all layers alike is better at {own.budget} than what the search found: {_small(saved)}"
    elif own.budget in models.better_uniform:
        saved = f"Uniform has the better score at {own.budget}. The slim model: {_small(saved)}"
    others = [(_trained_original(models), "the original"), (rival, "Uniform")]
    present = [(other, name) for other, name in others if other is not None and other.scores]
    score = f"{models.spread(own.scores)} {models.metric}"
    if not models.is_share:
        beside_it = " and ".join(f"{name} {models.spread(other.scores)}" for other, name in present)
        return headline(f"{saved}, {score}{f' ({beside_it})' if beside_it else ''}", [], len(own.scores))
    parts = [
        beside(difference, name, is_original=name != "Uniform")
        for other, name in present
        if (difference := models.difference(own, other)) is not None
    ]
    return headline(saved, parts if _trained_original(models) else [score, *parts], max(1, len(own.scores)))


def delivered(models: Models, own: Model) -> Model:
    """Return the slim model of a budget: the one that the search found, or Uniform where that was taken.

    Args:
        models: The finished models.
        own: A model that CafeNet found.

    Returns:
        The model that was handed back.
    """
    uniform = uniform_of(models, own)
    return uniform if uniform is not None and own.budget in models.taken_uniform else own


def _saved(original: Model | None, own: Model) -> str:
    """Return what is left of the cost that the budget caps."""
    capped = costs_in(own.budget)
    if original is None:
        return f"{count(own.flops)} FLOPs"
    if capped == {"latency_ms"} and original.latency_ms:
        return share_in_words(own.latency_ms / original.latency_ms, "latency")
    if capped == {"params"}:
        return share_in_words(own.params / original.params, "parameters")
    return share_in_words(own.flops / original.flops, "FLOPs")


def uniform_of(models: Models, own: Model) -> Model | None:
    """Return Uniform at the budget of a model.

    Args:
        models: The finished models.
        own: A model that CafeNet found.

    Returns:
        The model, or None if there is none.
    """
    return next((each for each in models.models if each.kind == UNIFORM and each.budget == own.budget), None)


def _trained_original(models: Models) -> Model | None:
    """Return the original, unless it came untrained."""
    return None if models.gain is not None and not models.gain.is_trained else models.original


def _sentence(models: Models, own: Model) -> str:
    """Return the sentence with which a printed result begins."""
    if models.gain is not None:
        return sentence(models.gain)
    original, uniform = models.original, uniform_of(models, own)
    if original is None or not own.scores:
        return ""
    compared = [_measured("before", original), _measured("after", own)]
    compared += [] if uniform is None else [_measured("Uniform", uniform)]
    return sentence(Gain(models.metric, tuple(compared), True, "with the same training", 0, models.num_examples or 0))


def _measured(name: str, model: Model) -> Measured:
    """Return a model of a run in the form of a search's comparison, with the mean over its seeds."""
    score = mean(model.scores)
    return Measured(name, model.flops, model.params, model.latency_ms, model.file_bytes or 0, score, score)


def _tiles(models: Models, own: Model) -> str:
    """Return the costs and the score before and after, as large numbers."""
    original = models.original
    if original is None:
        return ""
    costs = [
        ("FLOPs", original.flops, own.flops, count),
        ("parameters", original.params, own.params, count),
        ("latency", original.latency_ms, own.latency_ms, lambda value: f"{value:.3g} ms"),
    ]
    unclear = {"latency"} if _overlap(original.latency_range_ms, own.latency_range_ms) else set()
    if original.file_bytes and own.file_bytes:
        costs.append(("file", original.file_bytes, own.file_bytes, lambda value: f"{count(value)}B"))
    tiles = [_score_tile(models, own)] + [
        _tile(name, _change(before, after, name in unclear), show(before), show(after), after / before)
        for name, before, after, show in costs
    ]
    return f'<dl class="tiles">{"".join(tiles)}</dl>'


def _change(before: float, after: float, is_unclear: bool) -> str:
    """Return the change of a cost, or that it is not clear."""
    return "unclear" if is_unclear else _sign(after / before - 1, ".0%")


def _overlap(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    """Return whether two ranges overlap; ranges that are not known do not."""
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]


def _score_tile(models: Models, own: Model) -> str:
    """Return the tile of the score, which has no bar: a bar from zero would hide what matters."""
    name, after = f"{models.metric} ({models.data.partition(' ')[0]})", models.shown(mean(own.scores))
    original = _trained_original(models)
    if original is None or not original.scores:
        return f'<div><dt>{text(name)}</dt><dd class="change">{text(after)}</dd></div>'
    before = mean(original.scores)
    change = f"{_sign(models.unit(mean(own.scores)) - models.unit(before), '.2f')}"
    unit = " <small>points</small>" if models.is_share else ""
    return (
        f'<div><dt>{text(name)}</dt><dd class="change">{change}{unit}</dd>'
        f'<dd class="from">{text(models.shown(before))} → <b>{text(after)}</b></dd></div>'
    )


def _tile(name: str, change: str, before: str, after: str, share: float) -> str:
    """Return the tile of a cost."""
    meter = f'<div class="meter" aria-hidden="true"><i></i><i style="width:{min(100, 100 * share):.1f}%"></i></div>'
    return (
        f'<div><dt>{name}</dt><dd class="change">{change}</dd><dd>{meter}</dd>'
        f'<dd class="from">{before} → <b>{after}</b></dd></div>'
    )


def _sign(value: float, form: str) -> str:
    """Return a number with a sign; a minus is as long as a plus."""
    return f"{value:+{form}}".replace("-", "\N{MINUS SIGN}")


def _picture(space: Mapping[str, Any] | None, own: Model) -> str:
    """Return the network before and after."""
    layers = [] if space is None else layers_of(space, own.widths)
    if not layers or not own.widths:
        return ""
    return (
        f'<figure id="figure-network"><div class="chart">{silhouette(layers)}</div><div class="ends"><span>input</span>'
        f'<span><i></i>original<i class="own"></i>{text(own.name)}</span><span>output</span></div></figure>'
    )


def _small(words: str) -> str:
    """Return words as the end of a sentence."""
    return words[:1].lower() + words[1:]


def _capital(words: str) -> str:
    """Return words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]
