"""What `cafenet inspect` found, as data and as a JSON document."""

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Any

from cafenet.space.bins import Bins
from cafenet.space.width_space import WidthSpace


@dataclass(frozen=True)
class Inspection:
    """A traced model, how it was traced and how long that took."""

    model: str
    input_size: tuple[int, ...]
    space: WidthSpace
    bins: Bins
    beta: float
    verified: bool
    seconds: float


def as_document(inspection: Inspection) -> dict[str, Any]:
    """Return plain values for `json.dumps`. Keys may be added in later releases; none changes its meaning."""
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
        package: _version(package) for package in ("cafenet", "torch", "torchvision", "timm")
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
