"""A search that is ready to run: its parts, and what is done for each budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from cafenet.common.job_progress import next_part
from cafenet.common.run_files import STAGES
from cafenet.common.run_places import model_place, slug
from cafenet.errors import TrainingError
from cafenet.pipeline.baseline import Baseline, described_teacher
from cafenet.pipeline.checks import check_file_size, check_latency, check_search
from cafenet.pipeline.directory import SearchDirectory, stages_before
from cafenet.pipeline.first_latencies import latencies_before
from cafenet.pipeline.gain import Gain, measure_gain
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import Given, Start, sampling_of, supernet_of
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.plan import SearchPlan, length_of, plan_search
from cafenet.pipeline.result import SearchResult
from cafenet.pipeline.stage_plan import StagesConfig, plan_stages, stages_for
from cafenet.pipeline.stages import StagesResult, place_for, search_in_stages
from cafenet.pipeline.trained_model import Verdict
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.recalibration import recalibrate_model
from cafenet.searching.budget import Budget, parse_budget
from cafenet.searching.file_size import file_bytes
from cafenet.searching.latency.measure import check_runtime, measure_latency
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.train import check_training
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig


@dataclass(frozen=True, eq=False)
class AskedBudget:
    """One budget with its stages and the directory of their supernets."""

    budget: Budget
    """The budget."""
    full_costs: dict[str, float]
    """Costs of the full model by name."""
    stages: StagesConfig
    """Options of the stages."""
    place: Path
    """Directory of the supernets."""
    is_measured_before: bool
    """True if an earlier search in the same directory has measured the latencies."""


@dataclass(frozen=True, eq=False)
class WholeSearch:
    """The parts that the searches of all budgets have in common."""

    model: nn.Module
    """The original model; it is not changed."""
    example_inputs: Any
    """Inputs that the model was traced with."""
    space: WidthSpace
    """The width space of the model."""
    job: Job
    """The data and options of the search."""
    final: TrainConfig | None
    """Options of the slim model's training, or None if it is not trained."""
    start: Start
    """Weights that the slim model's training starts from."""
    test: Data | None
    """Data that nothing is chosen on, or None."""
    has_baseline: bool
    """True if a Uniform model is trained to compare with."""
    verdict: Verdict = field(default_factory=lambda: Verdict(is_trained=False, sentence=""))
    """Whether the model came trained."""
    distill: DistillConfig | None = None
    """Options of the distillation from the original model, or None if the slim model learns labels alone."""

    def for_verdict(self, verdict: Verdict, given: Given, options: SearchOptions) -> "WholeSearch":
        """Return this search with the defaults for a model that is trained, or for one that is not.

        Args:
            verdict: Whether the model came trained.
            given: The lengths and trainings that the user chose.
            options: The options that the user chose.

        Returns:
            The search with the trainings, the supernet and the sampling that follow.

        Raises:
            TrainingError: If the slim model shall learn from a model that is not trained, or is not trained itself.
        """
        training, final = given.trainings(verdict.is_trained)
        if self.distill is not None:
            _expect_teacher(verdict, final)
        supernet, sampling = supernet_of(options, verdict.is_trained), sampling_of(options, verdict.is_trained)
        settled = self.job.supernet  # as the budgets and the runtime need them
        supernet = replace(supernet, bins=settled.bins, divisor=settled.divisor)
        teacher = self.model if verdict.is_trained else None
        job = replace(self.job, training=training, supernet=supernet, sampling=sampling, teacher=teacher)
        return replace(self, job=job, final=final, verdict=verdict)

    def plans(self, asked: Sequence[AskedBudget], directory: Path | None) -> list[SearchPlan]:
        """Plan what will be done for each budget and how long that takes.

        Args:
            asked: The budgets.
            directory: Directory that the user gave, or None.

        Returns:
            One plan per budget.
        """
        training = None if self.uniform is None else self.uniform.training
        return [
            plan_search(
                self.model,
                self.space,
                self.job,
                each.budget,
                each.stages,
                self.final,
                training,
                directory,
                example_inputs=self.example_inputs,
                num_test=length_of(self.test),
                is_distilled=self.distill is not None,
            )
            for each in asked
        ]

    @property
    def uniform(self) -> Baseline | None:
        """The Uniform baseline, if there is one."""
        if self.final is None or not self.has_baseline:
            return None
        return Baseline(
            self.model,
            self.example_inputs,
            self.space,
            self.job,
            self.final,
            self.start,
            self.verdict.is_trained,
            self.distill,
        )

    @cached_property
    def full_latency_ms(self) -> float:
        """Latency of the full model, measured once for all budgets."""
        return measure_latency(self.model, self.example_inputs, self.job.latency)

    @cached_property
    def full_file_bytes(self) -> int:
        """Size of the file of the full model, written once for all budgets."""
        return file_bytes(self.model, self.example_inputs, self.job.latency)

    def ask(self, text: Any, place: Path, stages: StagesConfig | None) -> AskedBudget:
        """Read a budget. A second start takes the latencies that the first one measured.

        Args:
            text: The budget as the user wrote it.
            place: Directory of the supernets for this budget.
            stages: Options of the stages, or None for those of an earlier search, else the usual ones.

        Returns:
            The budget with its stages.

        Raises:
            BudgetError: If the budget cannot be read.
        """
        before = latencies_before(place, str(text).strip(), self.space, self.job.latency)

        def measure() -> float:
            """Return the latency of the full model, to which a percentage refers."""
            return self.full_latency_ms if before is None else before["full_ms"]

        budget = parse_budget(
            text, self.space, full_latency_ms=measure, full_file_bytes=lambda: float(self.full_file_bytes)
        )
        full = {"flops": float(self.space.flops()), "params": float(self.space.params())}
        if any(cap.cost == "latency_ms" for cap in budget.caps):
            full["latency_ms"] = measure()
        if any(cap.cost == "file_bytes" for cap in budget.caps):
            full["file_bytes"] = float(self.full_file_bytes)
        stages = stages or stages_before(place) or stages_for(budget, full, self.start)
        return AskedBudget(budget, full, stages, place, before is not None)

    def check(self, asked: Sequence[AskedBudget]) -> None:
        """Report problems before the first training.

        Args:
            asked: The budgets.

        Raises:
            CafeNetError: If a budget, an option or the data cannot be used.
        """
        for training in (self.job.training, self.final):
            if training is not None:
                check_training(training, self.job.train_data, next(self.model.parameters()).device, self.job.loss)
        beta = self.job.supernet.beta
        plans = [plan_stages(each.budget, each.full_costs, beta, each.stages) for each in asked]
        is_fresh = not all((each.place / STAGES.name).exists() for each in asked)
        if is_fresh:
            check_runtime(self.model, self.example_inputs, self.job.latency)
        check_search(self.job, self.space, [stage for plan in plans for stage in plan], is_fresh, self.test)
        for each in asked:
            if is_fresh:
                check_file_size(self.job, self.space, each.budget, self.example_inputs)
            if not each.is_measured_before:
                check_latency(self.job, self.space, each.budget, self.example_inputs)

    def search(
        self, asked: AskedBudget, kept: SearchDirectory, describe: Callable[[], None], directory: Path | None
    ) -> SearchResult:
        """Search one budget, train its slim model and compare it.

        Args:
            asked: The budget.
            kept: Directory of the search, which keeps times and entries.
            describe: Writes what was asked for, once the checkpoints have accepted the options.
            directory: Directory that the user gave, or None.

        Returns:
            The slim model with its widths, costs and gain.
        """
        budget = asked.budget
        with kept.timed("search"):
            found = search_in_stages(
                self.space, self.example_inputs, budget, self.job, asked.stages, asked.place, asked.full_costs
            )
        describe()
        entry = kept.add_entry(found)
        with kept.timed("finetune"):
            slim = self._finished(found, self._model_place(kept.path, entry.key))
        models = {"before": self.model, "after": slim}
        if self.uniform is not None:
            with next_part(), kept.timed("uniform"):
                place = self._model_place(kept.path, slug(budget.text, "Uniform"))
                models["Uniform"] = self.uniform.trained(budget, found.result, place)
        with next_part(), kept.timed("compare"):
            gain = self._gain(models, budget, self._model_place(kept.path, entry.key))
        uniform = models.get("Uniform")
        if gain.takes_uniform and uniform is not None:
            slim = uniform
        return SearchResult(
            slim, found.result, self.space, self.example_inputs, directory, gain, uniform, models["after"]
        )

    def _model_place(self, directory: Path, key: str) -> Path:
        """Return the directory of a model that is trained with the seed of the search."""
        return model_place(directory, key, self.job.training.seed)

    def _gain(self, models: dict[str, nn.Module], budget: Budget, place: Path) -> Gain:
        """Compare the slim model with the original and with Uniform, whose latency no budget holds."""
        return measure_gain(
            models,
            self.space,
            self.example_inputs,
            self.job,
            is_trained=self.verdict.is_trained,
            uniform="" if self.uniform is None else self.uniform.words,
            test=self.test,
            place=place,
            is_finetuned=self.final is not None,
            may_take_uniform=not budget.is_measured,
        )

    def _finished(self, found: StagesResult, place: Path) -> nn.Module:
        """Return the slim model with recalibrated statistics, trained if the user asked for it."""
        slim, job, channels = found.slim, self.job, found.result.channels
        if self.final is None or self.start == "supernet":
            num_examples, device = job.scoring.calibration_size, next(slim.parameters()).device
            recalibrate_model(
                slim, hold_examples(job.train_data, "training data", num_examples=num_examples, device=device)
            )
        else:
            slim = self.space.extract(channels=channels, model=initialised(self.model, self.final.seed))
        if self.final is None:
            return slim
        is_fresh = self.start == "scratch"
        begins_with = {"channels": channels} | ({} if is_fresh else {"stage": found.place.name})
        begins_with |= described_teacher(self.model, self.distill)
        place = place_for(place.parent, place.name, begins_with)
        with next_part():
            return train_model(
                slim,
                self.example_inputs,
                job.train_data,
                self.final,
                loss=job.loss,
                teacher=None if self.distill is None else self.model,
                distill=self.distill,
                directory=place,
                quiet=job.quiet,
                title="slim model",
            )


def _expect_teacher(verdict: Verdict, final: TrainConfig | None) -> None:
    """Refuse distillation where nothing can be learned from the original model, or nothing is trained."""
    if final is None:
        raise TrainingError(
            "distill teaches the slim model during its own training, but it has none; leave finetune=False "
            "(or finetune_epochs=0) out"
        )
    if not verdict.is_trained:
        raise TrainingError(
            "distill needs a model that comes trained, but this one does not; leave distill out, or say trained=True "
            "if its score on the validation data misleads"
        )
