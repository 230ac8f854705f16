"""One network with one seed: trained, searched in one call, and cut in other ways."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cafenet
from benchmarks.newcomer.networks import NETWORKS
from benchmarks.peers.methods import torch_pruning, uniform
from benchmarks.peers.tasks import Task
from benchmarks.ranking.networks import cifar_parts
from cafenet.pipeline.gain import Measured
from cafenet.pipeline.lengths import Given
from cafenet.training.config import TrainConfig

PERCENT = 25
EPOCHS = 20
"""Epochs of the original network."""
BEFORE, OURS, UNIFORM, PEER, LONG = "Original", "CafeNet", "Uniform", "Torch-Pruning", ", as long in all"


@dataclass(frozen=True, eq=False)
class Cell:
    """A network and a seed, with the place of what is kept between starts."""

    network: str
    seed: int
    cache: Path
    quick: bool

    @property
    def place(self) -> Path:
        return self.cache / ("quick" if self.quick else "full") / self.network / f"seed-{self.seed}"

    @cached_property
    def task(self) -> Task:
        """The data: 10,000 + 4,000 + 5,000 images at 16x16."""
        return Task(self.network, *cifar_parts())

    @cached_property
    def trained(self) -> nn.Module:
        """The network that the newcomer comes with."""
        torch.manual_seed(self.seed)
        config = TrainConfig(epochs=1 if self.quick else EPOCHS, seed=self.seed)
        model, task = NETWORKS[self.network](), self.task
        return cafenet.train_model(
            model, task.example, task.batches(), config, directory=self.place / "original", quiet=True
        )

    def searched(self) -> dict[str, dict[str, Any]]:
        """Call the search, and return the rows of the three models that it compares."""
        from cafenet.data import eval_loader

        result = cafenet.search(
            self.trained,
            self.task.batches(),
            self.task.validation_batches(),
            budget=f"{PERCENT}%",
            test_data=eval_loader(self.task.test),
            seed=self.seed,
            directory=self.place / f"search, {self.defaults}",
            **({"effort": "quick"} if self.quick else {}),
        )
        assert result.gain is not None
        assert result.gain.baseline is not None
        shown = {BEFORE: result.gain.before, OURS: result.gain.after, UNIFORM: result.gain.baseline}
        rows = {name: _row(each) for name, each in shown.items()}
        rows[OURS] |= {"widths": dict(result.widths), "printed": str(result)}
        result.report()
        return {name: row | {"defaults": self.defaults} for name, row in rows.items()}

    def fine_tuned(self, name: str) -> dict[str, Any]:
        """Cut the trained network as a name says, fine-tune it, and return its row."""
        cut = torch_pruning if name.startswith(PEER) else uniform
        slim = cut(self.task, self.trained, PERCENT, self.seed, self.place)
        config = self._long if name.endswith(LONG) else self._trainings[1]
        tuned = cafenet.train_model(slim, self.task.example, self.task.batches(), config, quiet=True)
        row = {"accuracy": self.task.accuracy(tuned), "flops": self.task.flops(tuned), "epochs": config.epochs}
        return row | {"defaults": self.defaults}

    @property
    def defaults(self) -> str:
        """The lengths and rates that a search of this version chooses; every row names its own."""
        return ", ".join(f"{each.epochs:g} epochs at {each.optimizer.lr:g}" for each in self._trainings)

    @property
    def _trainings(self) -> tuple[TrainConfig, TrainConfig]:
        """The supernet's training and the fine-tuning that a search chooses for a trained model."""
        given = Given(None, None, None, None, "quick" if self.quick else "normal", "supernet", self.seed)
        supernet, slim = given.trainings(is_trained=True)
        assert slim is not None
        return supernet, slim

    @property
    def _long(self) -> TrainConfig:
        supernet, slim = self._trainings
        return replace(supernet, epochs=supernet.epochs + slim.epochs)


def _row(each: Measured) -> dict[str, Any]:
    assert each.test_score is not None
    return {"accuracy": round(100 * each.test_score, 3), "flops": each.flops, "latency_ms": round(each.latency_ms, 3)}
