"""The data and options that all stages of a search have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.modules.batches import LossFunction
from cafenet.pipeline.shared_search import SharedSearch
from cafenet.scoring.examples import Data
from cafenet.scoring.metrics import Metric
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import KnownLatency, LatencyConfig
from cafenet.searching.search_config import SearchConfig
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.training.config import TrainConfig


@dataclass(frozen=True, eq=False)
class Job:
    """The data and options that all stages of a search have in common."""

    train_data: Dataset[Any] | DataLoader[Any]
    """Training data: a data set or a loader of pairs (inputs, target)."""
    val_data: Data
    """Validation data that widths are scored on."""
    loss: str | LossFunction = "cross_entropy"
    """The loss, by name or as a function of (output, target)."""
    metric: str | Metric = "accuracy"
    """The measure of quality, by name or as a function of (output, target); higher is better."""
    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    """Options of the supernet."""
    training: TrainConfig = field(default_factory=TrainConfig)
    """Options of the supernet's training."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Options of the sampling of widths during the training."""
    algorithm: Algorithm = field(default_factory=Trend)
    """Algorithm that proposes widths."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Options of the search on one supernet."""
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    """Options of the scoring."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    """Options of the latency measurement."""
    full: KnownLatency | None = None
    """The model that latency budgets are a share of, with its latency; None if there are no such budgets."""
    freeze: tuple[str, ...] = ()
    """Names of layers that keep their widths, with wildcards: `*.se`."""
    outputs: str | int | Sequence[str | int] | None = None
    """The parts of the model's output that matter, as in `cafenet.trace`; None stands for all."""
    shared: SharedSearch | None = None
    """The storage that workers on other machines share, or None for a journal beside the supernet."""
    teacher: nn.Module | None = None
    """Model whose outputs all supernets learn if `sampling.distill` is set; None stands for each supernet's own full
    network."""
    head_sizes: bool = False
    """Whether the size of attention heads may vary beside their number, as in `cafenet.trace`."""
    quiet: bool = False
    """True shows no progress."""
