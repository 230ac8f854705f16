"""Widths before and after, along the network: one picture of the whole, and one bar per group with its real name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cafenet.report.html import text
from cafenet.report.kinds import ORIGINAL, OWN, UNIFORM
from cafenet.report.models import Model
from cafenet.report.plot import Figure, Key
from cafenet.report.run_records import RunRecord

_ROW = 34
_COLUMN, _GAP = 100, 22
_TALLEST = 116


@dataclass(frozen=True)
class Layer:
    """One layer before and after."""

    name: str
    """Name of the layer in the model."""
    before: int
    """Number of its output channels in the original."""
    after: int
    """Number of its output channels in the slim model."""


def silhouette(layers: Sequence[Layer]) -> str:
    """Draw the network from input to output: the original pale, the slim model within it.

    Heights are square roots of channels, so that narrow layers are seen beside wide ones.

    Args:
        layers: The layers in the order of the network.

    Returns:
        The SVG element.
    """
    widest = max(layer.before for layer in layers) ** 0.5
    before, after = ([_TALLEST * each**0.5 / widest for each in each_layer] for each_layer in _channels(layers))
    drawn = [f'<path class="{kind}" d="{_flow(heights)}"/>' for kind, heights in ((ORIGINAL, before), (OWN, after))]
    for number, layer in enumerate(layers):
        blocks = _block(number, before[number], ORIGINAL) + _block(number, after[number], OWN)
        tip = text(f"{layer.name}: {layer.before} to {layer.after} channels")
        drawn.append(f'<g class="mark layer" data-tip="{tip}">{blocks}</g>')
    size = f'viewBox="0 0 {_COLUMN * len(layers)} {_TALLEST}" height="{_TALLEST}"'
    return f'<svg class="silhouette" width="100%" {size} preserveAspectRatio="none">{"".join(drawn)}</svg>'


def _channels(layers: Sequence[Layer]) -> tuple[list[int], list[int]]:
    """Return the channels of all layers before and after."""
    return [layer.before for layer in layers], [layer.after for layer in layers]


def _block(number: int, height: float, kind: str) -> str:
    """Return the block of one layer, centred on the axis of the network."""
    return (
        f'<rect class="{kind}" x="{_COLUMN * number + _GAP}" width="{_COLUMN - 2 * _GAP}" '
        f'y="{(_TALLEST - height) / 2:.1f}" height="{height:.1f}"/>'
    )


def _flow(heights: Sequence[float]) -> str:
    """Return the outline of what connects the blocks: a straight edge from each block to the next."""
    ends = [
        (_COLUMN * number + place, height / 2)
        for number, height in enumerate(heights)
        for place in (_GAP, _COLUMN - _GAP)
    ]
    middle = _TALLEST / 2
    upper = [f"{x} {middle - reach:.1f}" for x, reach in ends]
    lower = [f"{x} {middle + reach:.1f}" for x, reach in reversed(ends)]
    return f"M{'L'.join(upper + lower)}Z"


def layers_of(space: Mapping[str, Any], widths: Mapping[str, int]) -> list[Layer]:
    """Return the searched layers of a model in its order.

    Args:
        space: The content of `space.json`; those of earlier versions say nothing about the order of layers.
        widths: Channels of each group in the slim model.

    Returns:
        The layers.
    """
    groups = {name: group for group in space["groups"] for name in group["layers"] or [group["name"]]}
    known = [each["name"] for each in space.get("layers", []) if each["name"] in groups] or list(groups)
    return [
        Layer(name, group["channels"], widths.get(group["name"], group["channels"]))
        for name in known
        for group in [groups[name]]
    ]


@dataclass(frozen=True)
class WidthRows:
    """One row per group: its name, its width before and after, and a bar with Uniform's width marked in it."""

    groups: Sequence[Mapping[str, Any]]
    """The groups, as in `space.json`."""
    kinds_of_layers: Mapping[str, str]
    """Class of each layer, by name."""
    model: Model
    """The slim model."""
    uniform: Model | None
    """Uniform at the same budget, if its widths are known."""
    keys: list[Key] = field(default_factory=list)
    """The rows need no legend that hides and shows."""

    @property
    def height(self) -> int:
        """Height in pixels."""
        return _ROW * len(self.groups)

    def svg(self) -> str:
        """Draw the rows.

        Returns:
            The SVG element.
        """
        rows = "".join(self._row(number, group) for number, group in enumerate(self.groups))
        return f'<svg class="rows" width="100%" height="{self.height}">{rows}</svg>'

    def _row(self, number: int, group: Mapping[str, Any]) -> str:
        """Return one row."""
        full, top = group["channels"], _ROW * number
        kept = self.model.widths.get(group["name"], full)
        base = None if self.uniform is None else self.uniform.widths.get(group["name"])
        tip = f"{coupled(group)}: {kept} of {full} channels" + (f"; Uniform keeps {base}" if base else "")
        tick = "" if base is None else (
            f'<line class="tickmark {UNIFORM}" x1="{100 * base / full:.1f}%" x2="{100 * base / full:.1f}%" '
            f'y1="{top + 16}" y2="{top + 30}"/>'
        )  # fmt: skip
        return (
            f'<text class="name" x="0" y="{top + 12}">{text(self._name(group))}</text>'
            f'<text class="kept" x="100%" y="{top + 12}" text-anchor="end">{full} → <tspan>{kept}</tspan></text>'
            f'<g class="mark" data-tip="{text(tip)}"><rect class="pale {ORIGINAL}" width="100%" y="{top + 19}" '
            f'height="8" rx="2"/><rect class="{OWN}" width="{100 * kept / full:.1f}%" y="{top + 19}" height="8" '
            f'rx="2"/></g>{tick}'
        )

    def _name(self, group: Mapping[str, Any]) -> str:
        """Return the name of a group, with its class if the name is only a number, and how many layers are tied."""
        name, layers = str(group["name"]), group["layers"] or []
        kind = self.kinds_of_layers.get(layers[0] if layers else name, "")
        shown = f"{kind} {name}" if kind and name.replace(".", "").isdigit() else name
        return shown if len(layers) < 2 else f"{shown} + {len(layers) - 1} tied"


def coupled(group: Mapping[str, Any]) -> str:
    """Return a group's name with the layers that are tied in it.

    Args:
        group: The group, as in `space.json`.

    Returns:
        The text.
    """
    layers = group.get("layers") or []
    return group["name"] if len(layers) < 2 else f"{group['name']} ({', '.join(layers)})"


def width_figures(run: RunRecord, models: Sequence[Model]) -> dict[str, Figure]:
    """Draw the widths of every model that CafeNet found.

    Args:
        run: The records of the run.
        models: The finished models; or, where there are none yet, those that the search found.

    Returns:
        The figures by name.
    """
    if run.space is None or not run.space["groups"]:
        return {}
    kinds = {each["name"]: each["kind"] for each in run.space.get("layers", [])}
    groups = run.space["groups"]
    half = -(-len(groups) // 2) if len(groups) > 4 else len(groups)
    figures = {}
    own = [model for model in models if model.kind == OWN]
    for number, model in enumerate(own):
        uniform = next((each for each in models if each.kind == UNIFORM and each.budget == model.budget), None)
        uniform = uniform if uniform is not None and uniform.widths else None
        parts = [groups[start : start + half] for start in range(0, len(groups), half)]
        caption = "Pale is the original, solid is what is kept"
        caption += "; the upright mark is Uniform at the same budget. " if uniform else ". "
        caption += "Layers that are tied together have one width and one row, named after the first of them."
        figures["widths" if number == 0 else f"widths-{number + 1}"] = Figure(
            f"Width of every layer: {model.name}",
            caption,
            tuple(WidthRows(part, kinds, model, uniform) for part in parts),
            is_detail=number > 0,
        )
    return figures
