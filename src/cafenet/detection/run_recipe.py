"""A detection recipe from start to end in one directory; every training can be stopped and continued."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from cafenet.common.files import write_text
from cafenet.common.read_files import read_file
from cafenet.common.run_files import DETECTION_EVALUATION, DETECTION_RESULTS, DETECTIONS, RECIPE, SAMPLES
from cafenet.common.run_places import DETECTOR_CHECKPOINT, model_place
from cafenet.common.write_files import write_file
from cafenet.detection.backbone_sources import Backbone, find_backbones
from cafenet.detection.dataset import CocoData, check_pair, divide
from cafenet.detection.detectors import Detector, build_detector, check_detector, pyramid_flops
from cafenet.detection.errors import DetectionError
from cafenet.detection.evaluation import evaluate_detections, predict, require_pycocotools
from cafenet.detection.images import Pictures, Scaling
from cafenet.detection.read_coco import read_coco
from cafenet.detection.recipe import DetectionRecipe, load_detection_recipe
from cafenet.detection.results import COLUMNS, DetectorRow, as_document
from cafenet.detection.sample_images import write_samples
from cafenet.detection.training import train_detector
from cafenet.modules.digests import digest_of_model
from cafenet.runs.devices import find_device
from cafenet.runs.directory import RecipeDirectory
from cafenet.runs.identity import begin_training, keep_evaluation, kept_evaluation
from cafenet.runs.recipe_files import as_document as as_plain
from cafenet.training.batch_feed import Feed
from cafenet.training.checkpoint import digest_of_checkpoint, load_checkpoint
from cafenet.training.loop import WITHOUT_EFFECT
from cafenet.training.process_group import processes


def detect(
    recipe: DetectionRecipe | str,
    directory: str | Path,
    *,
    flags: Sequence[str] = (),
    models: Mapping[str, nn.Module] | None = None,
    quiet: bool = False,
    command: list[str] | None = None,
) -> list[DetectorRow]:
    """Train and evaluate every backbone of a recipe with every seed; finished work is not repeated.

    Everything that can be wrong is checked before the first training. The directory holds recipe.yaml, manifest.json,
    models/*/seed-*/ (detector.pt, log.jsonl, detections.json, evaluation.json) and results.json.

    Args:
        recipe: The recipe, or the name of one.
        directory: The run directory.
        flags: Flags that replace values of a recipe by name.
        models: Further pretrained backbones by name; they are copied, not changed.
        quiet: If True, no progress is shown.
        command: The command line for the manifest, by default that of this process.

    Returns:
        One row per backbone.

    Raises:
        CafeNetError: If the recipe, a backbone, the data or a file in the directory cannot be used.
    """
    if isinstance(recipe, str):
        recipe = load_detection_recipe(recipe, flags)
    workload = _Workload(recipe, models)
    workload.check()
    directory, team = Path(directory), processes()
    place = team.on_first(lambda: _begun(workload, directory, command))
    train, test = workload.pictures()
    with place.timed("train") if team.is_first else nullcontext():
        for backbone in workload.backbones:
            for seed in recipe.seeds:
                _train_and_evaluate(workload, backbone, seed, train, test, directory, quiet)
    return team.on_first(lambda: _finished(workload, directory, place))


def _begun(workload: "_Workload", directory: Path, command: list[str] | None) -> RecipeDirectory:
    """Begin or continue the run directory, which only the first of several processes has."""
    # Of a recipe, the directory only needs the seed.
    place = RecipeDirectory(directory, cast(Any, workload.recipe), command, maker="cafenet detect")
    write_samples(workload.test_data, workload.recipe.samples, directory, workload.data_digests["test"])
    return place


def _finished(workload: "_Workload", directory: Path, place: RecipeDirectory) -> list[DetectorRow]:
    """Write the table of the run, and return its rows."""
    rows = [_row(workload, backbone, directory) for backbone in workload.backbones]
    dropped = {"train": workload.train_data.num_dropped, "test": workload.test_data.num_dropped}
    document = {**as_document(rows, workload.recipe.reference), "dropped_boxes": dropped}
    write_file(DETECTION_RESULTS, directory, document)
    place.finish()
    return rows


def load_detector(
    directory: str | Path, backbone: str, seed: int, models: Mapping[str, nn.Module] | None = None
) -> Detector:
    """Load a detector that a run trained.

    Args:
        directory: The run directory.
        backbone: Name or key of the backbone.
        seed: Seed of the training.
        models: The further backbones that the run was given.

    Returns:
        The detector in eval mode.

    Raises:
        DetectionError: If there is no such backbone, or its training is missing or not finished.
    """
    recipe = load_detection_recipe(str(Path(directory) / RECIPE.name))
    found, _ = find_backbones(recipe.backbones, models)
    by_name = {name: each for each in found for name in (each.name, each.key)}
    if backbone not in by_name:
        raise DetectionError(f"a backbone of {directory} must be one of {', '.join(by_name)}, but got {backbone!r}")
    chosen = by_name[backbone]
    path = model_place(Path(directory), chosen.key, seed) / DETECTOR_CHECKPOINT
    if not path.is_file():
        raise DetectionError(f"{path} must be a trained detector, but is not there; see `cafenet detect`")
    content = load_checkpoint(path)
    if content["step"] < content["identity"]["steps"]:
        raise DetectionError(f"{path} must be a detector at the end of its training, but is not; see `cafenet detect`")
    num_classes = len(read_file(SAMPLES, Path(directory))["classes"])
    detector = _build(recipe, chosen, seed, num_classes)
    detector.load_state_dict(content["model"])
    return detector.eval()


class _Workload:
    """The parts that a recipe names; mistakes are found here."""

    def __init__(self, recipe: DetectionRecipe, models: Mapping[str, nn.Module] | None) -> None:
        self.recipe = recipe
        self._check_options()
        self.train_data, self.test_data = _read(recipe)
        self.backbones, self.pretraining = find_backbones(recipe.backbones, models)

    def _check_options(self) -> None:
        """Report options that cannot be used."""
        recipe = self.recipe
        if not recipe.seeds or len(set(recipe.seeds)) < len(recipe.seeds) or min(recipe.seeds) < 0:
            raise DetectionError(f"seeds must hold at least one, each once and not negative, but are {recipe.seeds}")
        if recipe.train.seed:
            raise DetectionError(f"train.seed must be left out, since seeds decides, but is {recipe.train.seed}")
        if recipe.samples < 0:
            raise DetectionError(f"samples must be 0 or more, but is {recipe.samples}")
        check_detector(recipe.detector)
        require_pycocotools()

    def check(self) -> None:
        """Check that every backbone can carry a detector and that the data fill a step."""
        for backbone in self.backbones:
            for seed in self.recipe.seeds:
                try:
                    self.build(backbone, seed)
                except DetectionError as error:
                    raise DetectionError(f"{backbone.name}: {error}") from error
        config = self.recipe.train
        team = processes()
        Feed(
            cast(Any, self.train_data.pictures),
            batch_size=config.batch_size,
            accumulate=config.accumulate,
            world_size=team.size,
        )

    def build(self, backbone: Backbone, seed: int) -> Detector:
        """Build an untrained detector on a pretrained backbone."""
        return _build(self.recipe, backbone, seed, len(self.train_data.classes))

    @cached_property
    def data_digests(self) -> dict[str, str]:
        """Short digests of the data that detectors are trained and tested on."""
        return {"train": self.train_data.digest(), "test": self.test_data.digest()}

    def identity(self, backbone: Backbone, seed: int) -> dict[str, Any]:
        """Return everything that the training of a detector depends on."""
        options = as_plain(self.recipe.train)
        for name in ("seed", *WITHOUT_EFFECT):
            options.pop(name, None)
        return {
            "backbone": backbone.name,
            "backbone_weights": digest_of_model(backbone.build(seed)),
            "detector": as_plain(self.recipe.detector),
            "flip": self.recipe.data.flip,
            "train": options,
            "seed": seed,
            "train_data": self.data_digests["train"],
        }

    def pictures(self) -> tuple[Pictures, Pictures]:
        """Return both parts of the data, decoded if they fit into memory."""
        scaling = Scaling(self.recipe.detector.min_size, self.recipe.detector.max_size)
        flip = self.recipe.data.flip
        return Pictures(self.train_data, scaling, flip=flip), Pictures(self.test_data, scaling)


def _build(recipe: DetectionRecipe, backbone: Backbone, seed: int, num_classes: int) -> Detector:
    """Build a detector; the weights of its new layers depend only on the seed."""
    model = backbone.build(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_detector(model, num_classes, recipe.detector)


def _read(recipe: DetectionRecipe) -> tuple[CocoData, CocoData]:
    """Read the training and the test images."""
    data = recipe.data
    whole = read_coco(data.train, data.images, bad_boxes=data.bad_boxes)
    if data.test is None:
        return divide(whole, data.test_share, data.split_seed)
    test = read_coco(data.test, data.test_images or data.images, bad_boxes=data.bad_boxes)
    check_pair(whole, test)
    return whole, test


def _train_and_evaluate(
    workload: _Workload, backbone: Backbone, seed: int, train: Pictures, test: Pictures, directory: Path, quiet: bool
) -> None:
    """Train or continue one detector and evaluate it once."""
    place = model_place(directory, backbone.key, seed)
    identity = workload.identity(backbone, seed)
    tested = {**identity, "test_data": workload.data_digests["test"]}
    team = processes()
    if team.on_first(lambda: _is_done(place, identity, tested)):
        return
    detector = workload.build(backbone, seed)
    detector.to(find_device(workload.recipe.device))
    config = replace(workload.recipe.train, seed=seed)
    train_detector(detector, train, config, directory=place, quiet=quiet, title=f"{backbone.name} seed {seed}")
    if team.is_first:
        found = predict(detector, test, batch_size=config.batch_size, num_workers=config.num_workers)
        write_text(place / DETECTIONS.name, json.dumps(found, separators=(",", ":")))
        content = asdict(evaluate_detections(test.data, found))
        keep_evaluation(DETECTION_EVALUATION, place, place / DETECTOR_CHECKPOINT, tested, content, digest_of_checkpoint)
    team.barrier()


def _is_done(place: Path, identity: dict[str, Any], tested: dict[str, Any]) -> bool:
    """Return whether a detector was trained and evaluated; if not, record what its training begins with."""
    checkpoint = place / DETECTOR_CHECKPOINT
    if kept_evaluation(DETECTION_EVALUATION, place, checkpoint, tested, digest_of_checkpoint) is not None:
        return True
    begin_training(place, identity)
    return False


def _row(workload: _Workload, backbone: Backbone, directory: Path) -> DetectorRow:
    """Return costs and precisions of one backbone."""
    recipe = workload.recipe
    places = [model_place(directory, backbone.key, seed) for seed in recipe.seeds]
    evaluations = [read_file(DETECTION_EVALUATION, place) for place in places]
    detector = workload.build(backbone, recipe.seeds[0])
    height, width = (-(-side // 32) * 32 for side in (recipe.detector.min_size, recipe.detector.max_size))
    return DetectorRow(
        backbone=backbone.name,
        key=backbone.key,
        framework=recipe.detector.framework,
        pretraining=workload.pretraining,
        flops=pyramid_flops(detector, height, width),
        params=sum(parameter.numel() for parameter in detector.parameters()),
        seeds=tuple(recipe.seeds),
        scores=tuple({column: each[column] for column in COLUMNS} for each in evaluations),
        per_class=tuple(each["per_class"] for each in evaluations),
    )
