"""Sources of backbones: a directory of `cafenet run`, files of slim models, or modules in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import RECIPE
from cafenet.common.run_places import MODELS, SLIM, expect_maker, slug
from cafenet.detection.errors import DetectionError
from cafenet.detection.recipe import BackboneFile, BackbonesConfig
from cafenet.models import load_model
from cafenet.pipeline.entries import Entry, read_entries
from cafenet.space.slim_file import load


@dataclass(frozen=True)
class Backbone:
    """One future row: a pretrained network with a name."""

    name: str
    """Name in tables."""
    build: Callable[[int], nn.Module]
    """Returns the pretrained network for a seed."""

    @property
    def key(self) -> str:
        """Name of the backbone's directory: "Uniform 50%" is "uniform-50pct"."""
        return slug(self.name)


def find_backbones(
    config: BackbonesConfig, models: Mapping[str, nn.Module] | None = None
) -> tuple[list[Backbone], str]:
    """Find the backbones of a recipe and those of the caller.

    Args:
        config: The backbones section of the recipe.
        models: Further pretrained models by name.

    Returns:
        The backbones, and a description of the pretraining that they share.

    Raises:
        DetectionError: If there is no backbone, the pretraining is not named, or two backbones share a name.
    """
    found: list[Backbone] = []
    pretraining = config.pretraining
    if config.run is not None:
        of_run, description = _of_run(config, Path(config.run))
        found += of_run
        if not config.files and not models:
            pretraining = pretraining or description
    found += [Backbone(file.name, _of_file(file)) for file in config.files]
    found += [Backbone(name, _as_it_is(model)) for name, model in (models or {}).items()]
    if not found:
        raise DetectionError(
            "a comparison must have at least one backbone, but has none; give backbones.run, a directory of "
            "`cafenet run`, or backbones.files"
        )
    if not pretraining:
        raise DetectionError(
            "backbones.pretraining must say what all backbones learned before, since a comparison is fair only if it "
            "is the same, but is empty; write `none` for fresh weights"
        )
    keys = [each.key for each in found]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise DetectionError(f"backbones must have names of their own, but several are called {', '.join(repeated)}")
    return found, pretraining


def _of_run(config: BackbonesConfig, directory: Path) -> tuple[list[Backbone], str]:
    """Return the trained models of a run, and its description."""
    recipe: dict[str, Any] | None = read_if_there(RECIPE, directory)
    if recipe is None:
        raise DetectionError(
            f"backbones.run must be a directory of `cafenet run`, but {directory} has no {RECIPE.name}"
        )
    expect_maker(directory, recipe, "cafenet run")
    entries = read_entries(directory)
    asked = [entry.key for entry in entries] if config.entries is None else list(config.entries)
    wanted = [_key_of(name, entries) for name in asked]
    by_key = {entry.key: entry for entry in entries}
    unknown = [key for key in wanted if key not in by_key]
    if unknown or not wanted:
        raise DetectionError(
            f"backbones.entries must be among the models of {directory} ({', '.join(by_key)}), but "
            f"{', '.join(unknown) or 'none'} {'are' if len(unknown) > 1 else 'is'} asked for"
        )
    untrained = [key for key in wanted if not _seeds(directory, key)]
    if untrained:
        raise DetectionError(
            f"the models of {directory} must be trained, but {len(untrained)} have no slim.pt "
            f"({', '.join(untrained)}); finish the run first, with the same `cafenet run` command"
        )
    model = config.model or str(recipe["model"]["name"])
    options = {**recipe["model"]["options"], **config.options}
    if config.model is not None and "num_classes" not in options:
        options |= _classes_of(load_model(str(recipe["model"]["name"]), **recipe["model"]["options"]))
    backbones = [Backbone(_label(by_key[key]), _of_entry(directory, key, model, options)) for key in wanted]
    return backbones, str(recipe.get("description") or directory.name)


def _key_of(name: str, entries: Sequence[Entry]) -> str:
    """Return the key of the entry that a name means, or the name itself if it means none.

    A backbone's own name, "cafenet-e-50pct", means the entry "50pct-cafenet-e"; "50pct-cafenet" means what the search
    of the run found, whatever the algorithm was, if there is one.
    """
    keys = [entry.key for entry in entries]
    if name in keys:
        return name
    same = [entry.key for entry in entries if Backbone(_label(entry), _as_it_is(nn.Identity())).key == name]
    found = same or [key for key in keys if name.endswith("-cafenet") and key.startswith(f"{name}-")]
    return found[0] if len(found) == 1 else name


def _classes_of(model: nn.Module) -> dict[str, int]:
    """Return the number of classes of a run's network as an option, so that another one gets the same head."""
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return {"num_classes": heads[-1].out_features} if heads else {}


def _label(entry: Entry) -> str:
    """Return method and budget in words."""
    return f"{entry.method} {entry.budget}".strip()


def _seeds(directory: Path, key: str) -> dict[int, Path]:
    """Return the files of an entry's trained models, by seed."""
    found = (directory / MODELS / key).glob(f"seed-*/{SLIM}")
    return {int(path.parent.name.removeprefix("seed-")): path for path in sorted(found)}


def _of_entry(directory: Path, key: str, model: str, options: dict[str, Any]) -> Callable[[int], nn.Module]:
    """Return a function that loads an entry's model of a seed, or of the first seed if there is none."""

    def build(seed: int) -> nn.Module:
        paths = _seeds(directory, key)
        return load(paths.get(seed, paths[min(paths)]), load_model(model, **options))

    return build


def _of_file(file: BackboneFile) -> Callable[[int], nn.Module]:
    """Return a function that builds a network and loads its weights."""

    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = load_model(file.model, **file.options)
        return model if file.weights is None else load(file.weights, model)

    return build


def _as_it_is(model: nn.Module) -> Callable[[int], nn.Module]:
    """Return a function that gives the model itself for every seed."""
    return lambda seed: model
