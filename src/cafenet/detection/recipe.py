"""The typed tree of a detection recipe, behind its YAML, its flags and `--help-recipe`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cafenet.common.options import Count, Range, Seed, check_options
from cafenet.detection.detectors import DetectorConfig
from cafenet.detection.errors import DetectionError
from cafenet.detection.training import DetectionTraining
from cafenet.runs.recipe_files import load_tree
from cafenet.runs.recipe_texts import DETECTION, recipe_text, shipped_recipes


@dataclass(frozen=True)
class BackboneFile:
    """One classification network that becomes a backbone."""

    name: str
    """Name in tables, such as Uniform 0.5x; names that begin with CafeNet are compared with the rest."""
    model: str
    """The full-size network: cafenet:NAME, torchvision:NAME, path/to/file.py:FACTORY, ..."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model's factory: num_classes, width, weights, ..."""
    weights: str | None = None
    """A slim model of cafenet.save that was cut from the network; without one, the network is taken as it is built."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class BackbonesConfig:
    """The networks that are compared, all with the same pretraining."""

    run: str | None = None
    """A directory of `cafenet run`: its trained models are the backbones, and their training is the pretraining."""
    entries: tuple[str, ...] | None = None
    """Models of the run to take, by the names of their directories (original, 50pct-uniform, ...), or 50pct-cafenet for
    what the search found; by default all."""
    model: str | None = None
    """Another name for the run's full-size network with the same layers, to give it other strides by its options."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options that replace those with which the run built its network."""
    files: list[BackboneFile] = field(default_factory=list)
    """Further networks, from files."""
    pretraining: str = ""
    """Description of the pretraining that all backbones share, for the table; by default the run's description."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionData:
    """Images with boxes in COCO's format."""

    images: str = "data/coco/train2017"
    """Folder that the file names of `train` are relative to."""
    train: str = "data/coco/annotations/instances_train2017.json"
    """JSON file of the training images."""
    test: str | None = None
    """JSON file of the test images; without one, a share of `train` is held out."""
    test_images: str | None = None
    """Folder of the test images; by default the same as `images`."""
    test_share: Annotated[float, Range(0, 1, is_open="both")] = 0.2
    """Share of the images that is held out for testing if there is no `test`."""
    split_seed: Seed = 0
    """Seed of the division into training and test images."""
    bad_boxes: Literal["error", "drop"] = "error"
    """error refuses boxes of zero size or outside their image; drop leaves them out and counts them."""
    flip: bool = True
    """Mirror training images left to right with probability 1/2."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionReference:
    """A published row, shown beside the measured ones."""

    backbone: str
    """Name of the backbone."""
    mAP: str
    """mAP as published."""
    source: str = ""
    """Place of publication: a table, a section or an appendix by its label."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)


@dataclass(frozen=True)
class DetectionRecipe:
    """Backbones compared under one framework: trained alike, evaluated once after the last epoch."""

    description: str = ""
    """Title of the run in tables and reports."""
    seeds: tuple[Seed, ...] = (0,)
    """Each seed gives one training; it takes the run's backbone of the same seed if there is one, otherwise
    the first."""
    backbones: BackbonesConfig = field(default_factory=BackbonesConfig)
    """The networks that are compared."""
    data: DetectionData = field(default_factory=DetectionData)
    """Images with boxes."""
    detector: DetectorConfig = field(default_factory=DetectorConfig)
    """The framework around the backbones."""
    train: DetectionTraining = field(default_factory=DetectionTraining)
    """Training of the detectors."""
    device: str = "auto"
    """Device on which detectors are trained: cpu, cuda or cuda:1; auto takes a GPU if there is one."""
    samples: Count = 4
    """Number of test images that the report shows with the boxes found in them."""
    reference: list[DetectionReference] = field(default_factory=list)
    """Published rows of the same experiment."""

    def __post_init__(self) -> None:
        check_options(self, DetectionError)

    @property
    def seed(self) -> int:
        """The first seed, for the manifest."""
        return self.seeds[0] if self.seeds else 0


def load_detection_recipe(name: str, flags: Sequence[str] = ()) -> DetectionRecipe:
    """Load a detection recipe.

    Args:
        name: Name of a shipped recipe, or path of a file.
        flags: Flags that replace values, such as `["--train.epochs", "6"]`.

    Returns:
        The recipe.

    Raises:
        RecipeError: If there is no such recipe, or a key or value is wrong.
    """
    return load_tree(DetectionRecipe, name, detection_recipe_text(name), flags)


def detection_recipe_text(name: str) -> str:
    """Return the YAML of a detection recipe.

    Args:
        name: Name of a shipped recipe, or path of a file.

    Returns:
        The text.

    Raises:
        RecipeError: If there is no such recipe.
    """
    return recipe_text(name, DETECTION, "cafenet detect --list")


def shipped_detection_recipes() -> dict[str, str]:
    """List the detection recipes that come with the package.

    Returns:
        The description of each recipe, by name.
    """
    return shipped_recipes(DETECTION)
