"""The parts that a recipe names: the model, its width space, the data and the budgets; mistakes are found here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from cafenet.common.limits import check_input_size
from cafenet.common.run_places import LATENCY
from cafenet.data import DataSets, ImageData, eval_loader, hold_out, load_data, stratified_sample, to_rgb, train_loader
from cafenet.data.loaders import scaling_note
from cafenet.errors import ModelNameError, RecipeError
from cafenet.models import default_input_size, load_model, published_input_size
from cafenet.models.registry import frozen_by_default
from cafenet.models.weights import load_weights
from cafenet.pipeline.auto_divisor import AutoDivisor
from cafenet.pipeline.job import Job
from cafenet.pipeline.shared_search import SharedSearch
from cafenet.runs.devices import find_device
from cafenet.runs.identity import digest_of_data
from cafenet.runs.recipe import Recipe
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.budget import Budget, costs_in, parse_budgets
from cafenet.searching.feasible import Feasible
from cafenet.searching.file_size import FileSizes
from cafenet.searching.latency.estimate import LatencyModel, fit_latency, write_latency
from cafenet.searching.latency.measure import KnownLatency
from cafenet.searching.search_config import SearchConfig
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins, for_capped_costs
from cafenet.tracing.tracer import find_space, trace


class Workload:
    """The parts of a run, each built once when it is first needed."""

    def __init__(
        self,
        recipe: Recipe,
        directory: Path | None = None,
        *,
        shared: SharedSearch | None = None,
        quiet: bool = False,
    ) -> None:
        """Keep the recipe; nothing is built yet.

        Args:
            recipe: The recipe.
            directory: The run directory; latencies that were measured there before are used again.
            shared: The storage that workers on other machines share, if they may join.
            quiet: If True, no progress is shown.
        """
        self.shared, self.whole_recipe = shared, recipe
        supernet = for_capped_costs(recipe.supernet, costs_in(recipe.budget))
        self.recipe, self.quiet = replace(recipe, supernet=supernet), quiet
        self._directory, self._auto_divisor = directory, supernet.divisor == "auto"
        self._latency_file = None if directory is None else directory / LATENCY
        self._spaces: dict[tuple[tuple[str, int], ...], WidthSpace] = {}

    def settle_divisor(self) -> str:
        """Replace the divisor "auto" by the steps of the runtime, which are measured unless the directory holds them.

        Returns:
            A sentence about what was measured; empty if nothing was.
        """
        if self.recipe.supernet.divisor != "auto":
            return ""
        self.recipe = replace(self.recipe, supernet=self._auto.settled(self.recipe.supernet))
        return self._auto.sentence

    @cached_property
    def _auto(self) -> AutoDivisor:
        """The divisor of the runtime."""
        return AutoDivisor(self.space, self.example, self.recipe.latency, self._directory)

    def build(self, seed: int) -> nn.Module:
        """Build the full network with fresh weights.

        Args:
            seed: Seed on which alone the weights depend.

        Returns:
            The network, on the device.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return load_model(self.recipe.model.name, **self.recipe.model.options).to(self.device)

    def teacher(self) -> nn.Module:
        """Build the model that the recipe names as teacher, with its weights.

        Returns:
            The teacher, on the device.
        """
        final = self.recipe.finetune
        return load_model(str(final.teacher), **final.teacher_options).to(self.device)

    @cached_property
    def device(self) -> torch.device:
        """Device of the recipe; `auto` takes a GPU if there is one."""
        return find_device(self.recipe.device)

    @cached_property
    def model(self) -> nn.Module:
        """The full network that supernets start from: with the recipe's weights, or fresh ones of its seed."""
        model, weights = self.build(self.recipe.seed), self.recipe.model.weights
        if weights is not None:
            try:
                load_weights(model, Path(weights))
            except ModelNameError as error:
                raise RecipeError(str(error).replace("--weights", "model.weights")) from error
        return model

    @cached_property
    def input_size(self) -> tuple[int, ...]:
        """Channels, height and width of an input: those of the recipe, those published for the model, or those of the
        images."""
        name = self.recipe.model.name
        chosen = self.recipe.model.input_size or published_input_size(name)
        if chosen is None and isinstance(self._sets.train.images, Tensor):
            chosen = self._sets.train.images.shape[1:]
        size = tuple(chosen or default_input_size(name))
        check_input_size(size, RecipeError)
        return size

    @property
    def example(self) -> Tensor:
        """One input of zeros."""
        return torch.zeros(1, *self.input_size, device=self.device)

    @property
    def freeze(self) -> tuple[str, ...]:
        """Names of layers that keep their widths, with wildcards."""
        chosen = self.recipe.model.freeze
        return frozen_by_default(self.recipe.model.name) if chosen is None else tuple(chosen)

    @cached_property
    def space(self) -> WidthSpace:
        """The width space of the model."""
        return trace(self.model, self.example, freeze=self.freeze)

    def space_of(self, channels: Mapping[str, Sequence[int]]) -> WidthSpace:
        """Return the width space of a slim network, which is traced once for all networks of its widths.

        Args:
            channels: Numbers of the kept channels of each group; a missing group is kept whole.

        Returns:
            The width space. Its model has no weights, so that many of them take no memory.
        """
        chosen = self.space.full_widths | {name: len(kept) for name, kept in channels.items()}
        if chosen == self.space.full_widths:
            return self.space
        widths = tuple(chosen.items())
        if widths not in self._spaces:
            slim = self.space.extract(channels=channels)
            self._spaces[widths] = find_space(slim, self.example, verify=False)
            slim.to("meta")
        return self._spaces[widths]

    @cached_property
    def whole_train(self) -> ImageData:
        """All training examples, or the sample that the recipe asks for; final models are trained on them."""
        data, wanted = self._data[0], self.recipe.data.num_train
        if wanted is None or wanted >= len(data):
            return data
        return data.subset(stratified_sample(data.targets, wanted, self.recipe.data.split_seed))

    @cached_property
    def _sets(self) -> DataSets:
        """The data as they were read."""
        return load_data(self.recipe.data.source, **self.recipe.data.options)

    @cached_property
    def _data(self) -> tuple[ImageData, ImageData]:
        """Training and test set, with grey images turned into three channels if the model takes colour images."""
        sets = self._sets
        is_grey = isinstance(sets.train.images, Tensor) and sets.train.images.shape[1] == 1
        if is_grey and self.input_size[0] == 3:
            return to_rgb(sets.train), to_rgb(sets.test)
        return sets.train, sets.test

    @property
    def test(self) -> ImageData:
        """The test set."""
        return self._data[1]

    @cached_property
    def data_digests(self) -> dict[str, str]:
        """Short digests of the data that final models are trained and tested on."""
        return {"train": digest_of_data(self.whole_train), "test": digest_of_data(self.test)}

    @cached_property
    def _halves(self) -> tuple[ImageData, ImageData]:
        """The training examples, divided into those for supernets and those for validation."""
        config = self.recipe.data
        return hold_out(self.whole_train, config.validation_share, config.split_seed)

    @property
    def train(self) -> ImageData:
        """The examples that supernets are trained on."""
        return self._halves[0]

    @property
    def validation(self) -> ImageData:
        """The examples that widths are scored on."""
        return self._halves[1]

    @property
    def scaling_note(self) -> str:
        """Note for the user about images that are enlarged, or an empty text."""
        channels, *size = self.input_size
        return scaling_note(self.train, size, f"--model.input_size '[{channels},{{size}}]' leaves them as they are")

    def loader(self, data: ImageData, *, augmented_batch: int | None = None) -> DataLoader[Any]:
        """Make a loader of a part of the data.

        Args:
            data: The part.
            augmented_batch: Batch size of augmented batches for training; None gives plain batches for scoring.

        Returns:
            The loader.
        """
        config, size = self.recipe.data, self.input_size[1:]
        options: dict[str, Any] = {"size": size if len(size) == 2 else None, "num_workers": config.num_workers}
        if augmented_batch is None:
            return eval_loader(data, **options)
        return train_loader(data, augmented_batch, config.augmentation, **options)

    @cached_property
    def budgets(self) -> list[Budget]:
        """The budgets of the recipe."""
        return parse_budgets(
            self.recipe.budget,
            self.space,
            full_latency_ms=lambda: self._latency_model.full_ms,
            full_file_bytes=lambda: float(self._files.full),
        )

    def feasible(self, budget: Budget) -> Feasible:
        """Return the width vectors that meet a budget, in the bins of the first stage.

        Args:
            budget: The budget.

        Returns:
            The vectors.

        Raises:
            BudgetError: If the smallest subnet exceeds the budget.
        """
        costs: dict[str, Any] = {
            "flops": self.space.flops,
            "params": self.space.params,
            "latency_ms": lambda widths: self._latency_model.predict(widths),
            "file_bytes": lambda widths: self._files.predict(widths),
        }
        return Feasible(build_bins(self.space, self.recipe.supernet), costs, budget, self.recipe.band)

    @cached_property
    def _latency_model(self) -> LatencyModel:
        """The estimate of latency, fitted once."""
        bins, settings = build_bins(self.space, self.recipe.supernet), self.recipe.latency
        return fit_latency(
            self.space,
            bins,
            self.example,
            settings,
            cache=self._latency_file,
            anywhere=True,
            is_written=False,
            quiet=self.quiet,
        )

    @cached_property
    def _files(self) -> FileSizes:
        """The sizes of files, estimated from a few that are written once."""
        bins = build_bins(self.space, self.recipe.supernet)
        return FileSizes(self.space, bins, self.example, self.recipe.latency)

    def keep_latencies(self) -> None:
        """Write measured latencies and steps into the run directory, so that a second start has the same bins, budgets
        and baselines."""
        if self._auto_divisor:
            self._auto.keep(self.recipe.supernet)
        if self._latency_file is not None and any(
            cap.cost == "latency_ms" for each in self.budgets for cap in each.caps
        ):
            write_latency(self._latency_model, self._latency_file)

    def full_costs(self, budget: Budget) -> dict[str, float]:
        """Return the costs of the full network, for every cap of a budget.

        Args:
            budget: The budget.

        Returns:
            The costs by name.
        """
        costs = {"flops": float(self.space.flops()), "params": float(self.space.params())}
        if any(cap.cost == "latency_ms" for cap in budget.caps):
            costs["latency_ms"] = self._latency_model.full_ms
        if any(cap.cost == "file_bytes" for cap in budget.caps):
            costs["file_bytes"] = float(self._files.full)
        return costs

    @property
    def full_latency(self) -> KnownLatency | None:
        """The full network with the latency that budgets are shares of, or None if no budget caps latency."""
        is_capped = any(cap.cost == "latency_ms" for budget in self.budgets for cap in budget.caps)
        return KnownLatency(self.model, self._latency_model.full_ms) if is_capped else None

    @property
    def has_fixed_baseline(self) -> bool:
        """True if the recipe asks for a search on the fixed sharing and the main search does not use that sharing
        itself."""
        supernet = self.recipe.supernet
        return self.recipe.baselines.fixed and (supernet.sharing != "locally_free" or supernet.r > 0)

    def job(self, algorithm: str, *, fixed: bool = False) -> Job:
        """Return the data and options with which supernets are trained and searched.

        Args:
            algorithm: Name of the search algorithm.
            fixed: If True, the fixed sharing replaces that of the recipe.

        Returns:
            The job.
        """
        recipe = self.recipe
        algorithms: dict[str, Algorithm] = {
            "evolution": recipe.evolution,
            "random": recipe.random,
            "greedy": recipe.greedy,
            "trend": recipe.trend,
        }
        supernet = replace(recipe.supernet, sharing="locally_free", r=0, per_group=False) if fixed else recipe.supernet
        training = replace(recipe.train, seed=recipe.seed)
        part = {"algorithm": algorithm, "fixed": fixed}
        return Job(
            train_data=self.loader(self.train, augmented_batch=training.batch_size),
            val_data=self.loader(self.validation),
            loss=recipe.loss,
            metric=recipe.metric,
            supernet=supernet,
            training=training,
            sampling=recipe.sampling,
            algorithm=algorithms[algorithm],
            search=SearchConfig(
                recipe.band, recipe.min_usage, recipe.num_finalists, recipe.seed, recipe.search_workers
            ),
            scoring=recipe.scoring,
            latency=recipe.latency,
            full=self.full_latency,
            freeze=self.freeze,
            shared=None if self.shared is None else replace(self.shared, part=part),
            quiet=self.quiet,
        )
