"""The findings of `cafenet inspect`, as data and as a JSON document."""

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Any

from cafenet.space.bins import Bins
from cafenet.space.width_space import WidthSpace


@dataclass(frozen=True)
class Inspection:
    """A traced model, the options of the trace, and its duration."""

    model: str
    """Name of the model as the user gave it."""
    input_size: tuple[int, ...]
    """Shape of the example input."""
    space: WidthSpace
    """The width space of the model."""
    bins: Bins
    """The bins of its groups."""
    beta: float
    """Number of channels per bin in the most expensive group."""
    verified: bool
    """Whether `trace` checked the space with a second run at other widths."""
    seconds: float
    """Duration of the trace in seconds."""


def as_document(inspection: Inspection) -> dict[str, Any]:
    """Converts an inspection to plain values for `json.dumps`.

    Later releases may add keys, but do not change the meaning of a key.

    Args:
        inspection: The inspection.

    Returns:
        A dict of plain values.
    """
    space = inspection.space
    return {
        "model": inspection.model,
        "input": list(inspection.input_size),
        "flops": space.flops(),
        "flops_convention": "1 multiply-add = 1 FLOP",
        "params": space.params(),
        "searchable_flops_share": space.searchable_flops_share,
        "groups": [
            {
                "name": group.name,
                "channels": group.channels,
                "divisor": group.divisor,
                "min_width": group.min_width,
                "sensitivity": group.sensitivity,
                "flops_share": space.flops_share(group.name),
                "bin_size": bins.size,
                "num_bins": bins.num_bins,
            }
            for group, bins in zip(space.groups, inspection.bins.groups, strict=True)
        ],
        "beta": inspection.beta,
        "search_space_size": inspection.bins.search_space_size,
        "frozen": [
            {"name": frozen.name, "channels": frozen.channels, "reason": frozen.reason} for frozen in space.frozen
        ],
        "verified": inspection.verified,
        "seconds": inspection.seconds,
        "versions": _versions(),
    }


def _versions() -> dict[str, str | None]:
    return {"python": platform.python_version()} | {
        package: _version(package) for package in ("cafenet", "torch", "torchvision", "timm", "transformers")
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
