"""The typed tree that recipes (YAML), flags and `--help` come from: one sentence under each field is its help text."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from cafenet.common.options import Count, NumProcesses, Positive, PositiveInt, Range, Rising, Seed, Share, check_options
from cafenet.data.augment import Augmentation
from cafenet.errors import RecipeError
from cafenet.pipeline.stages import StagesConfig
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
    """What its factory takes: num_classes, width, flops_factor, ..."""
    input_size: tuple[PositiveInt, ...] | None = None
    """Channels, height and width of one input; by default what the model was published for, or that of the images."""
    freeze: tuple[str, ...] | None = None
    """Name patterns of layers that keep their widths; by default what the paper freezes in this model."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class DataConfig:
    """The data set, and how it is prepared."""

    source: str = "fashion"
    """fashion (embedded), npz:PATH, cifar10:PATH, cifar100:PATH, folder:PATH or celeba:PATH."""
    options: dict[str, Any] = field(default_factory=dict)
    """What its reader takes: size, cache_limit_bytes, ..."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    validation_share: Annotated[float, Range(0, 1, is_open="both")] = 0.1
    """Share of the training set that the search scores widths on; the test set is for the final models alone."""
    split_seed: Seed = 0
    num_train: PositiveInt | None = None
    """Use only that many training examples (a stratified sample), for small experiments."""
    num_workers: NumProcesses | None = None
    """Processes that prepare images; by default none for images in memory, else one a core."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class FinetuneConfig(TrainConfig):
    """How the final models are trained, all alike."""

    seeds: tuple[Seed, ...] = (0,)
    """One training for each; tables show the mean and the spread."""
    start: Literal["scratch", "supernet"] = "scratch"
    """From fresh weights, or from the supernet's (faster, reported apart; baselines without one start fresh)."""
    teacher: str | None = None
    """Distil from `original` (the unpruned network of the same run) or a model by name that comes with weights."""
    teacher_options: dict[str, Any] = field(default_factory=dict)
    """What the teacher's factory takes, such as {weights: DEFAULT} for torchvision or {pretrained: true} for timm."""
    distill: DistillConfig = field(default_factory=DistillConfig)

    def __post_init__(self) -> None:
        check_options(self, RecipeError)

    def training(self, seed: int) -> TrainConfig:
        """The training of one seed."""
        options = {each.name: getattr(self, each.name) for each in fields(TrainConfig)}
        return TrainConfig(**options | {"seed": seed})


@dataclass(frozen=True)
class BaselinesConfig:
    """What the result is shown against, trained alike."""

    original: bool = True
    """The network as it is."""
    uniform: bool = True
    """One factor for all groups, to the budget."""
    fixed: bool = True
    """The same search on a supernet with the fixed pattern (r = 0), unless that is what is searched."""
    random_widths: Count = 0
    """Random: that many widths are trained for a while, and the best on the validation set is trained in full."""
    random_epochs: Positive = 50
    """How long each of them is trained."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class Reference:
    """A published row, shown beside what was measured."""

    method: str
    budget: str = ""
    flops: str = ""
    params: str = ""
    accuracy: str = ""
    top5: str = ""
    source: str = ""
    """Where it is published: a table, a section or an appendix by its label."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)


@dataclass(frozen=True)
class Recipe:
    """A whole job: from a model and a budget to a trained slim model, beside its baselines."""

    description: str = ""
    budget: str = "50%"
    """50%, 150M, 1.5M params, 12ms; + between caps that must all hold, commas between several budgets."""
    loss: Literal["cross_entropy", "bce"] = "cross_entropy"
    """bce is for multi-label targets."""
    metric: Literal["accuracy", "negative_loss"] = "accuracy"
    """What widths are scored by."""
    seed: Seed = 0
    """Of the supernet's training and the search; the final models and the split have seeds of their own."""
    device: str = "auto"
    """Where everything is trained and scored: cpu, cuda or cuda:1; auto is a GPU where there is one."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    """Of the supernet."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    stages: StagesConfig = field(default_factory=StagesConfig)
    algorithms: tuple[Literal["evolution", "random", "greedy", "trend"], ...] = ("trend",)
    """CafeNet-T is trend, CafeNet-E evolution, CafeNet-R random, CafeNet-G greedy; each gives a model of its own."""
    evolution: Evolution = field(default_factory=Evolution)
    random: RandomSearch = field(default_factory=RandomSearch)
    greedy: Greedy = field(default_factory=Greedy)
    trend: Trend = field(default_factory=Trend)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Share of the budget that widths proposed by evolution and random search use; trend chooses its own."""
    min_usage: Share = 0.99
    """Share of the budget that the result uses at least, if any width can."""
    num_finalists: PositiveInt = 5
    """Number of best widths that are filled up and scored exactly at the end."""
    search_workers: Annotated[int, Range(1, 4096)] = 1
    """Number of processes on this machine that score widths; they divide its threads."""
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    baselines: BaselinesConfig = field(default_factory=BaselinesConfig)
    reference: list[Reference] = field(default_factory=list)
    """Published rows of the same experiment."""

    def __post_init__(self) -> None:
        check_options(self, RecipeError)
