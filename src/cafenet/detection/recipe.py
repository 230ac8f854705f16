"""The typed tree of a detection recipe: one source for its YAML, its flags and `--help-recipe`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cafenet.common.options import Count, Range, Seed, check_options
from cafenet.detection.detectors import DetectorConfig
from cafenet.detection.errors import DetectionError
from cafenet.detection.training import DetectionTraining
from cafenet.runs.recipe_files import load_tree
from cafenet.runs.recipe_texts import recipe_text, shipped_recipes

SHIPPED = "detection/recipes"


@dataclass(frozen=True)
class BackboneFile:
    """One classification network that becomes a backbone."""

    name: str
    """How it is called in tables, such as Uniform 0.5x; those that begin with CafeNet are compared with the rest."""
    model: str
    """The full-size network: cafenet:NAME, torchvision:NAME, path/to/file.py:FACTORY, ..."""
    options: dict[str, Any] = field(default_factory=dict)
    """What its factory takes: num_classes, width, weights, ..."""
    weights: str | None = None
    """A slim model of cafenet.save that was cut from it; without one the network is taken as it is built."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class BackbonesConfig:
    """The networks that are compared, all with the same pretraining."""

    run: str | None = None
    """A directory of `cafenet run`: its trained models are the backbones, and their training is the pretraining."""
    entries: tuple[str, ...] | None = None
    """Which of its models, by their directories' names (original, 50pct-uniform, ...); by default all."""
    model: str | None = None
    """Another name for the run's full-size network, of the same layers, to give it other strides by its options."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options over those that the run built its network with."""
    files: list[BackboneFile] = field(default_factory=list)
    """Further networks, from files."""
    pretraining: str = ""
    """What all of them learned before, in words for the table; by default the run's description."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionData:
    """Images with boxes in COCO's format."""

    images: str = "data/coco/train2017"
    """The folder that the file names of `train` are relative to."""
    train: str = "data/coco/annotations/instances_train2017.json"
    test: str | None = None
    """A JSON of its own for testing; without one a share of `train` is held out."""
    test_images: str | None = None
    """The folder of `test`; by default the same."""
    test_share: Annotated[float, Range(0, 1, is_open="both")] = 0.2
    split_seed: Seed = 0
    bad_boxes: Literal["error", "drop"] = "error"
    """What happens to boxes of zero size or outside their image; dropped ones are counted."""
    flip: bool = True
    """Mirror left and right, every other time."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionReference:
    """A published row, shown beside what was measured."""

    backbone: str
    mAP: str
    source: str = ""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionRecipe:
    """Backbones compared under one framework: trained alike, evaluated once after the last epoch."""

    description: str = ""
    seeds: tuple[Seed, ...] = (0,)
    """One training for each; a run's backbone of the same seed is taken where there is one, else its first."""
    backbones: BackbonesConfig = field(default_factory=BackbonesConfig)
    data: DetectionData = field(default_factory=DetectionData)
    detector: DetectorConfig = field(default_factory=DetectorConfig)
    train: DetectionTraining = field(default_factory=DetectionTraining)
    device: str = "auto"
    """Where detectors are trained: cpu, cuda or cuda:1; auto is a GPU where there is one."""
    samples: Count = 4
    """Test images that the report shows with what was found in them."""
    reference: list[DetectionReference] = field(default_factory=list)
    """Published rows of the same experiment."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)

    @property
    def seed(self) -> int:
        """The first one, for the manifest."""
        return self.seeds[0] if self.seeds else 0


def load_detection_recipe(name: str, flags: Sequence[str] = ()) -> DetectionRecipe:
    """A shipped recipe or a file, with flags such as `--train.epochs 6` over it."""
    return load_tree(DetectionRecipe, name, detection_recipe_text(name), flags)


def detection_recipe_text(name: str) -> str:
    """The YAML of a shipped recipe or of a file."""
    return recipe_text(name, SHIPPED, "cafenet detect --list")


def shipped_detection_recipes() -> dict[str, str]:
    """The names of the recipes that come with the package, each with its description."""
    return shipped_recipes(SHIPPED)
