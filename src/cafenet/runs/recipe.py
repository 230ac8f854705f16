"""The typed tree behind recipes (YAML), flags and `--help`: the docstring under each field is its help text."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from cafenet.common.options import (
    Count,
    NotEmpty,
    NumProcesses,
    Positive,
    PositiveInt,
    Range,
    Rising,
    Seed,
    Share,
    check_options,
)
from cafenet.data.augment import Augmentation
from cafenet.errors import RecipeError
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig


@dataclass(frozen=True)
class ModelConfig:
    """The network whose widths are searched."""

    name: str = "cafenet:cifar_mobilenet_v2"
    """cafenet:NAME, torchvision:NAME, timm:NAME, path/to/file.py:FACTORY or package.module:FACTORY."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model's factory: num_classes, width, flops_factor, ..."""
    weights: str | None = None
    """File of trained weights that supernets start from: a state dict (.pt, .safetensors), or a checkpoint of the
    training scripts of torchvision or timm. Final models start where `finetune.start` says."""
    input_size: Annotated[tuple[PositiveInt, ...], NotEmpty()] | None = None
    """Channels, height and width of one input; by default the size that the model was published for, or that of the
    images."""
    freeze: tuple[str, ...] | None = None
    """Names of layers that keep their widths, with wildcards (`*.se`); by default those that the paper freezes
    in this model."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class DataConfig:
    """The data set and its preparation."""

    source: str = "fashion"
    """fashion (included in the package), npz:PATH, cifar10:PATH, cifar100:PATH, folder:PATH or celeba:PATH."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the reader: size, cache_limit_bytes, ..."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    """Random changes of training images."""
    validation_share: Annotated[float, Range(0, 1, is_open="both")] = 0.1
    """Share of the training set that the search scores widths on; the test set is for the final models alone."""
    split_seed: Seed = 0
    """Seed of the division into training and validation set."""
    num_train: PositiveInt | None = None
    """Use only this many training examples (a stratified sample), for small experiments."""
    num_workers: NumProcesses | None = None
    """Processes that prepare images; by default none for images in memory, otherwise one per core."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class FinetuneConfig(TrainConfig):
    """The training of the final models, the same for all of them."""

    seeds: tuple[Seed, ...] = (0,)
    """Each seed gives one training; tables show the mean and the standard deviation."""
    start: Literal["scratch", "supernet"] = "scratch"
    """Start from fresh weights, or from those of the supernet (faster, reported separately; baselines without a
    supernet start fresh)."""
    teacher: str | None = None
    """Distil from `original` (the unpruned network of the same run) or from a model by name that comes with weights."""
    teacher_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the teacher's factory, such as {weights: DEFAULT} for torchvision or {pretrained: true} for timm."""
    distill: DistillConfig = field(default_factory=DistillConfig)
    """Options of the distillation from the teacher."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)

    def training(self, seed: int) -> TrainConfig:
        """Return the options of the training with one seed.

        Args:
            seed: Seed of the training.

        Returns:
            The options that every training has, with the seed.
        """
        options = {each.name: getattr(self, each.name) for each in fields(TrainConfig)}
        return TrainConfig(**options | {"seed": seed})


@dataclass(frozen=True)
class BaselinesConfig:
    """The networks that the result is compared with, trained alike."""

    original: bool = True
    """The unpruned network."""
    uniform: bool = True
    """One factor for all groups, down to the budget."""
    fixed: bool = True
    """Repeat the search on a supernet with the fixed sharing (r = 0), unless the search itself uses that."""
    random_widths: Count = 0
    """Number of random widths that are trained for a while; the best on the validation set is trained in full."""
    random_epochs: Positive = 50
    """Number of epochs for each random width."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class Reference:
    """A published row, shown beside the measured ones."""

    method: str
    """Name of the method."""
    budget: str = ""
    """Budget of the row."""
    flops: str = ""
    """FLOPs as published."""
    params: str = ""
    """Parameters as published."""
    accuracy: str = ""
    """Accuracy as published."""
    top5: str = ""
    """Top-5 accuracy as published."""
    source: str = ""
    """Place of publication: a table, a section or an appendix by its label."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class Recipe:
    """A whole job: from a model and a budget to a trained slim model, beside its baselines."""

    description: str = ""
    """Title of the run in tables and reports."""
    budget: str = "50%"
    """50%, 150M, 1.5M params or 12ms; + joins caps that must all hold, commas separate several budgets."""
    loss: Literal["cross_entropy", "bce"] = "cross_entropy"
    """Loss of all trainings; bce is for multi-label targets."""
    metric: Literal["accuracy", "negative_loss"] = "accuracy"
    """Metric that widths are scored by."""
    seed: Seed = 0
    """Seed of the supernet's training and of the search; the final models and the split have seeds of their own."""
    device: str = "auto"
    """Device for all training and scoring: cpu, cuda or cuda:1; auto takes a GPU if there is one."""
    paper: bool = False
    """True is exactly the paper's algorithm (r = 1, all candidates compared, uniform sampling over bins, CafeNet-E and
    CafeNet-R, from scratch), whatever the defaults are; keys that say something else are refused."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network whose widths are searched."""
    data: DataConfig = field(default_factory=DataConfig)
    """The data set and its preparation."""
    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    """Options that decide how weights are shared between widths."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Training of the supernet."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Options of sampling: which widths are trained."""
    stages: StagesConfig = field(default_factory=StagesConfig)
    """Division of the search into stages."""
    algorithms: tuple[Literal["evolution", "random", "greedy", "trend"], ...] = ("trend",)
    """trend gives CafeNet-T, evolution CafeNet-E, random CafeNet-R and greedy CafeNet-G; each gives a model of
    its own."""
    evolution: Evolution = field(default_factory=Evolution)
    """Options of evolutionary search."""
    random: RandomSearch = field(default_factory=RandomSearch)
    """Options of random search."""
    greedy: Greedy = field(default_factory=Greedy)
    """Options of greedy search."""
    trend: Trend = field(default_factory=Trend)
    """Options of search by trend."""
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    """Options that decide how carefully widths are scored."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    """Conditions under which latency is measured."""
    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Share of the budget that widths proposed by evolution and random search use; trend chooses its own."""
    min_usage: Share = 0.99
    """Share of the budget that the result uses at least, if any width can."""
    num_finalists: PositiveInt = 5
    """Number of best widths that are filled up and scored exactly at the end."""
    search_workers: Annotated[int, Range(1, 4096)] = 1
    """Number of processes on this machine that score widths; they divide its threads."""
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    """Training of the final models."""
    baselines: BaselinesConfig = field(default_factory=BaselinesConfig)
    """The networks that the result is compared with."""
    reference: list[Reference] = field(default_factory=list)
    """Published rows of the same experiment."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)
