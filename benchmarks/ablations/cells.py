"""The paper's ablations as cells: how a supernet is made and trained, and how it is searched."""

from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.supernet.build import SupernetConfig

EPOCHS = 10
"""Number of epochs of a supernet."""
OURS = SupernetConfig(r=1, beta=0.5)
FIXED = replace(OURS, r=0)
UNIFORM = replace(OURS, bins="uniform", num_bins=8)
COARSE = replace(OURS, beta=2.0)
"""Options of the first stage, since bins get finer from stage to stage."""


@dataclass(frozen=True)
class Cell:
    """One way from a network to a width."""

    supernet: SupernetConfig = OURS
    random_share: float = 0.0
    training: int = 1
    """Epochs of the supernet, as a multiple."""
    searching: int = 1
    """Widths scored, as a multiple; evolution only."""
    algorithm: Literal["evolution", "random", "greedy", "trend"] = "evolution"
    stages: StagesConfig = field(default_factory=StagesConfig)
    percent: int = 50

    @property
    def supernet_key(self) -> str:
        """Cells with the same one share a supernet, which is trained for widths about one budget."""
        training = {"lambda": self.random_share, "training": self.training, "percent": self.percent}
        return _key({**_changed(self.supernet), **training})

    @property
    def key(self) -> str:
        """A name that says all."""
        search = {"searching": self.searching, **_changed(self.stages)}
        return f"{self.supernet_key}, {self.algorithm} {_key(search)}"


@dataclass(frozen=True)
class Ablation:
    """A table of cells, one of which the others are compared with."""

    title: str
    cells: dict[str, Cell]
    reference: str


ABLATIONS = {
    "a6": Ablation(
        "Parts of the method (a6), one stage",
        {
            "uniform groups, fixed, greedy": Cell(replace(UNIFORM, r=0), algorithm="greedy"),
            "bins, fixed, greedy": Cell(FIXED, algorithm="greedy"),
            "bins, r=1 min-min, greedy": Cell(algorithm="greedy"),
            "uniform groups, fixed, evolution": Cell(replace(UNIFORM, r=0)),
            "bins, fixed, evolution": Cell(FIXED),
            "bins, r=1 min-min, evolution": Cell(),
            "bins, fixed, random": Cell(FIXED, algorithm="random"),
            "bins, r=1 min-min, random": Cell(algorithm="random"),
            "bins, fixed, trend": Cell(FIXED, algorithm="trend"),
            "bins, r=1 min-min, trend": Cell(algorithm="trend"),
        },
        "bins, r=1 min-min, evolution",
    ),
    "a7": Ablation(
        "Uniform groups or FLOPs-sensitive bins (a7), r=1, one stage",
        {
            f"{kind}, {percent}%": Cell(config, percent=percent)
            for percent in (50, 25)
            for kind, config in (("uniform groups", UNIFORM), ("bins", OURS))
        },
        "bins, 50%",
    ),
    "a13": Ablation(
        "Stages and alpha (a13); beta 2 in the first stage",
        {"1 stage": Cell(COARSE)}
        | {
            f"{stages} stages, alpha {alpha}": Cell(COARSE, stages=StagesConfig(stages, alpha))
            for stages, alpha in ((2, 2), (3, 1), (3, 2))
        }
        | {"2 stages, alpha 1, sharing the epochs": Cell(COARSE, stages=StagesConfig(2, 1.0, carry_weights=True))},
        "1 stage",
    ),
    "a15": Ablation(
        "The smallest bin, beta (a15), one stage",
        {f"beta {beta}": Cell(replace(OURS, beta=beta)) for beta in (4.0, 2.0, 1.0, 0.5, 0.25)},
        "beta 0.5",
    ),
    "lambda": Ablation(
        "Share of random candidates, lambda, one stage",
        {f"lambda {share}": Cell(random_share=share) for share in (0.0, 0.5, 1.0)},
        "lambda 0.0",
    ),
    "r": Ablation("The offset r, one stage", {f"r={r}": Cell(replace(OURS, r=r)) for r in (0, 1, 2, 3)}, "r=1"),
    "time_efficiency": Ablation(
        "The fixed sharing with more training and more search (time_efficiency), one stage",
        {
            f"fixed, {training}x training, {searching}x search": Cell(FIXED, training=training, searching=searching)
            for training in (1, 2, 3)
            for searching in (1, 2, 3)
        }
        | {"r=1, 1x training, 1x search": Cell()},
        "r=1, 1x training, 1x search",
    ),
}


def _changed(config: SupernetConfig | StagesConfig) -> dict[str, object]:
    """The options that differ from the library's defaults, and those that these tables vary."""
    default = asdict(type(config)())
    return {
        name: value for name, value in asdict(config).items() if value != default[name] or name in ("r", "num_stages")
    }


def _key(values: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
