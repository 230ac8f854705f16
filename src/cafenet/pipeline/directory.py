"""The files in the directory of `cafenet.search` beside the stages: its settings, the width space and the result."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cafenet.common.files import write_json
from cafenet.common.run_files import ENTRIES, RECIPE, SEARCH, SPACE, START, read_if_there
from cafenet.errors import TrainingError
from cafenet.modules.digests import digest_of_model
from cafenet.pipeline.stages import Job, StagesConfig, StagesResult
from cafenet.scoring.metrics import metric_name
from cafenet.searching.algorithms.base import METHODS
from cafenet.space.bins import Bins
from cafenet.space.description import describe_space
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins


def describe_search(
    model: nn.Module,
    space: WidthSpace,
    job: Job,
    budget: str,
    stages: StagesConfig,
    place: Path,
    bins: Bins | None = None,
) -> None:
    """Write the settings of a search and its width space, which a report shows beside the scores.

    Args:
        model: The original model, whose class is named in the description.
        space: The width space of the model.
        job: The data and options of the search.
        budget: The budget as the user wrote it.
        stages: The stages of the search.
        place: The directory of the search.
        bins: The bins of the groups, by default those that the job's options make.
    """
    parts = ("supernet", "sampling", "algorithm", "scoring", "latency", "freeze")
    search = {name: value for name, value in asdict(job.search).items() if name != "num_workers"}
    content = {
        "format": "cafenet-search",
        "format_version": 2,
        "description": f"{type(model).__name__} at {budget}",
        "budget": budget,
        "metric": metric_name(job.metric),
        "settings": {
            "train": _plain(job.training),
            **{name: _plain(getattr(job, name)) for name in parts},
            "stages": _plain(stages),
            **_plain(search),
        },
    }
    write_json(place / SEARCH.name, content)
    write_json(place / SPACE.name, describe_space(space, bins or build_bins(space, job.supernet)))


def expect_same_model(model: nn.Module, place: Path, *, is_trained: bool) -> None:
    """Record which trained model a search begins with; refuse the directory of a search of another one.

    A model that came untrained may have other weights at every start; those of the checkpoint count.

    Args:
        model: The original model.
        place: The directory of the search.
        is_trained: True if the model came trained.

    Raises:
        TrainingError: If the search in the directory began with another trained model.
    """
    content = {"weights": digest_of_model(model) if is_trained else None}
    before = read_if_there(START, place)
    if before is None:
        write_json(place / START.name, content)
    elif before != content:
        raise TrainingError(
            f"{place} must hold a search of this model, but the one that it holds began with other weights; use "
            "another directory, or remove it to begin again"
        )


def stages_before(directory: str | Path | None) -> StagesConfig | None:
    """Return the stages of the search that a directory holds.

    Args:
        directory: The directory of the search, or None.

    Returns:
        The stages, or None if the directory holds no search that recorded them.
    """
    found = None if directory is None else read_if_there(SEARCH, Path(directory))
    stages = None if found is None else found["settings"].get("stages")
    return None if stages is None else StagesConfig(**stages)


def _plain(config: Any) -> Any:
    """Return a config as plain JSON values. Other objects, such as a user's own algorithm, become their `repr`."""
    content = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    return json.loads(json.dumps(content, default=repr))


def write_entry(found: StagesResult, place: Path) -> None:
    """Write the widths found in the form that a run of `cafenet run` uses.

    Args:
        found: The result of the last stage.
        place: The directory of the search.
    """
    result = found.result
    method = METHODS.get(result.algorithm, f"CafeNet ({result.algorithm})")
    channels = dict(result.channels)
    entry = {
        "method": method,
        "budget": result.budget,
        "channels": channels,
        "search_score": result.score,
        "supernet": found.place.name,
    }
    write_json(place / ENTRIES.name, [entry])


@contextmanager
def kept_in(directory: str | Path | None) -> Iterator[Path]:
    """Provide the directory of a search: the user's own, or a temporary one that is removed on exit.

    Args:
        directory: The user's directory, or None for a temporary one.

    Yields:
        The directory, which need not exist yet if it is the user's.

    Raises:
        TrainingError: If the directory holds a run of `cafenet run`.
    """
    if directory is not None:
        if (Path(directory) / RECIPE.name).exists():
            raise TrainingError(f"{directory} holds a run of `cafenet run`, no search; give another directory")
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
