"""Multi-stage search: the plan by hand, every stage within its budget, and any interruption without a trace."""

import json
import multiprocessing
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import cafenet
from cafenet.errors import BudgetError, CafeNetError
from cafenet.pipeline import one_stage, stages
from cafenet.pipeline.job import Job
from cafenet.pipeline.one_stage import band_about, train_stage
from cafenet.pipeline.stage_plan import StagesConfig, plan_jobs, plan_stages, stages_for
from cafenet.pipeline.stages import StagesResult, composed, search_in_stages
from cafenet.scoring.metrics import accuracy
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching import width_search as widths
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap, parse_budget
from cafenet.searching.latency import estimate as latency_model
from cafenet.searching.result import FoundWidths, read_result
from cafenet.searching.search_config import SearchConfig
from cafenet.space.importance import channels_before, importance_order, in_order, sort_by_importance
from cafenet.space.slim_file import load, save
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import ScheduleConfig
from tests.helpers.small_training import Plain, assert_same_state, batch, built, config, traced

EXAMPLE = torch.zeros(1, 3, 4, 4)
FULL = 17_328  # FLOPs of `Plain`: 16 places x (8 x 27 + 12 x 72 weights) + 12 x 4
THREE = StagesConfig(num_stages=3)


def noisy(size: int, seed: int) -> TensorDataset:
    """Images of the four classes that a small network gets right now and then."""
    images, labels = batch(size, seed)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(images + 1.5 * noise, labels)


class Read(Dataset):
    """A data set in which something happens when an example is read for the n-th time."""

    def __init__(self, at: int = -1) -> None:
        self.examples, self.at, self.num_reads = noisy(64, 1), at, 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        self.num_reads += 1
        if self.num_reads == self.at:
            raise KeyboardInterrupt
        return self.examples[index]


class Measured:
    """Accuracy; something happens when it is asked for the n-th time."""

    def __init__(self, at: int = -1) -> None:
        self.__name__, self.at, self.num_asked = "measured", at, 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        self.num_asked += 1
        if self.num_asked == self.at:
            raise KeyboardInterrupt
        return accuracy(output, target)


def job(train: Dataset | None = None, metric: Callable | None = None, **options) -> Job:
    """8 steps of 8 examples and some ten scored widths a stage."""
    return Job(
        train_data=train or Read(),
        val_data=noisy(96, 2),
        metric=metric or Measured(),
        supernet=options.pop("supernet", SupernetConfig(r=1, beta=1.0)),
        training=options.pop("training", config(checkpoint_every=3)),
        algorithm=options.pop("algorithm", Evolution(population=4, iterations=2)),
        search=SearchConfig(num_finalists=2),
        scoring=ScoringConfig(calibration_size=32, batch_size=32, min_examples=16),
        quiet=True,
        **options,
    )


def searched(
    directory: Path,
    work: Job | None = None,
    stages_config: StagesConfig = THREE,
    text: str = "50%",
    model: nn.Module | None = None,
) -> StagesResult:
    """`Plain` at half its FLOPs in three stages."""
    work = work or job()
    space = cafenet.trace(model or built(), EXAMPLE, freeze=work.freeze, outputs=work.outputs)
    full = {"flops": float(space.flops()), "params": float(space.params())}
    return search_in_stages(space, EXAMPLE, parse_budget(text, space), work, stages_config, directory, full)


def kept(directory: Path) -> list[FoundWidths]:
    """The results that the stages wrote down."""
    return [read_result(next(place.glob("result-*.json"))) for place in sorted(directory.glob("stage-*"))]


def learned_of(checkpoint: Path) -> dict[str, Tensor]:
    """The weights that a checkpoint holds."""
    return torch.load(checkpoint, weights_only=True)["model"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[Path, StagesResult]:
    """The run that all others are compared with."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("whole")
    return directory, searched(directory)


def test_the_plan_of_the_docstring():
    budget = Budget("50%", (Cap("flops", 150e6),))
    plan = plan_stages(budget, {"flops": 300e6, "params": 1.0}, 1.0, THREE)
    assert [stage.number for stage in plan] == [1, 2, 3]
    assert [stage.budget.caps for stage in plan] == [(Cap("flops", limit),) for limit in (250e6, 200e6, 150e6)]
    assert [stage.beta for stage in plan] == [1.0, 0.5, 0.25]
    assert [stage.budget.text for stage in plan] == ["50% (stage 1 of 3)", "50% (stage 2 of 3)", "50%"]


def test_one_stage_is_the_budget_itself():
    """Exactly: 0.3 - (0.3 - 0.1) is a little less than 0.1."""
    budget = Budget("33%", (Cap("flops", 0.1),))
    (stage,) = plan_stages(budget, {"flops": 0.3}, 2.0, StagesConfig())
    assert stage.budget == budget
    assert (stage.number, stage.beta) == (1, 2.0)


def test_several_caps_are_approached_each_from_its_own_cost():
    budget = Budget("b", (Cap("flops", 100.0), Cap("params", 30.0), Cap("latency_ms", 1.0)))
    first, last = plan_stages(budget, {"flops": 300.0, "params": 50.0, "latency_ms": 5.0}, 1.0, StagesConfig(2, 4.0))
    assert first.budget.caps == (Cap("flops", 200.0), Cap("params", 40.0), Cap("latency_ms", 3.0))
    assert last.budget.caps == budget.caps
    assert (first.beta, last.beta) == (1.0, 0.25)


def test_only_the_latency_that_was_asked_for_is_measured(tmp_path, monkeypatch):
    """A width for the first stage's own cap would be refused, and with it the whole search."""

    def channels(model, *_):
        return float(model.one.out_channels + model.two.out_channels)

    def measured(model, *_):
        assert channels(model) <= 17, "the first stage is estimated at 16 to 18 of 20 ms, the second at 13 to 14"
        return channels(model)

    monkeypatch.setattr(latency_model, "measure_latency", channels)
    monkeypatch.setattr(widths, "measure_latency", measured)
    space, budget = traced(built()), Budget("14ms", (Cap("latency_ms", 14.0),))
    full = {"flops": FULL, "params": 1.0, "latency_ms": 20.0}
    work = job(algorithm=Trend(samples=20))
    found = search_in_stages(space, EXAMPLE, budget, work, StagesConfig(2, 1.0), tmp_path, full)
    first, last = kept(tmp_path)
    assert "latency_ms" not in first.costs
    assert last.costs["latency_ms"] == sum(found.result.widths.values()) <= 14


@pytest.mark.parametrize(("share", "number"), [(0.3, 1), (0.8, 2)])
def test_a_stage_within_a_latency_goes_on_with_what_it_measured_first(share, number, tmp_path, monkeypatch):
    """Where a layer is slower at the second start, the same widths are scored and found nevertheless."""
    slowness = [1.0]
    monkeypatch.setattr(widths, "measure_latency", lambda model, *_: model.one.out_channels + model.two.out_channels)
    monkeypatch.setattr(
        latency_model,
        "measure_latency",
        lambda model, *_: model.one.out_channels + slowness[0] * model.two.out_channels,
    )

    def found(place, metric):
        full = 8 + 12 * slowness[0]
        budget, costs = Budget("70% latency", (Cap("latency_ms", 0.7 * full),)), {"flops": FULL, "latency_ms": full}
        work = job(metric=metric, algorithm=Trend(samples=20))
        return search_in_stages(traced(built()), EXAMPLE, budget, work, StagesConfig(2, 1.0), place, costs)

    uninterrupted = Measured()
    found(tmp_path / "whole", uninterrupted)
    with pytest.raises(KeyboardInterrupt):
        found(tmp_path / "parts", Measured(round(share * uninterrupted.num_asked)))
    assert len(list((tmp_path / "parts").glob("stage-*"))) == number
    slowness[0] = 3.0
    found(tmp_path / "parts", Measured())
    assert kept(tmp_path / "parts")[number - 1] == kept(tmp_path / "whole")[number - 1]


@pytest.mark.parametrize("options", [{"num_stages": 0}, {"alpha": 0.0}, {"alpha": float("nan")}])
def test_impossible_stages(options):
    ((name, value),) = options.items()
    with pytest.raises(BudgetError, match=f"{name} must be .*, but is {value}"):
        StagesConfig(**options)


def test_channels_are_those_of_the_first_model():
    assert composed({"a": [0, 2, 5]}, {"a": [0, 2]}) == {"a": [0, 5]}
    assert composed({}, {"a": [1, 3]}) == {"a": [1, 3]}
    assert composed({"a": [4, 7], "b": [1]}, {"a": [1]}) == {"a": [7], "b": [1]}  # b cannot vary any more


def test_every_stage_keeps_its_budget_and_starts_from_the_last_ones_widths(uninterrupted):
    directory, found = uninterrupted
    limits = [FULL * share for share in (5 / 6, 4 / 6, 3 / 6)]
    results = kept(directory)
    assert traced(built()).flops() == FULL
    for result, limit in zip(results, limits, strict=True):
        assert result.costs["flops"] <= limit
        assert result.usage == pytest.approx(result.costs["flops"] / limit)
    for wide, narrow in pairwise(results):
        assert all(narrow.widths[name] <= width for name, width in wide.widths.items())
        assert all(max(channels) < wide.widths[name] for name, channels in narrow.channels.items())
    assert found.result.score == results[-1].score
    assert found.result.costs == results[-1].costs
    assert found.result.widths == results[-1].widths
    assert found.result.budget == "50%"


def test_every_stage_keeps_its_supernet_study_and_log(uninterrupted):
    directory, _ = uninterrupted
    for number in (1, 2, 3):
        names = {path.name for path in (directory / f"stage-{number}").iterdir()}
        assert {"supernet.pt", "trials.journal", "log.jsonl"} < names
    assert sorted(path.name for path in directory.iterdir()) == ["stage-1", "stage-2", "stage-3", "stages.json"]


def test_bins_get_finer(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(one_stage, "build_supernet", _noting(seen, one_stage.build_supernet))
    searched(tmp_path, stages_config=StagesConfig(3, alpha=4.0))
    assert [beta for _, beta, _ in seen] == [1.0, 0.25, 0.0625]


def test_the_channels_cost_what_the_result_says(uninterrupted):
    """Counted on the model that they make of the original one."""
    _, found = uninterrupted
    space = traced(built())
    slim = space.extract(channels=found.result.channels)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        slim.eval()(EXAMPLE)
    assert counter.get_total_flops() // 2 == found.result.costs["flops"] == space.flops(found.result.widths)
    assert sum(parameter.numel() for parameter in slim.parameters()) == found.result.costs["params"]
    assert {name: len(channels) for name, channels in found.result.channels.items()} == found.result.widths


def test_the_channels_are_composed_over_all_stages(uninterrupted):
    """Each stage's are places in its supernet, in the order of importance in the full network that it began with."""
    directory, found = uninterrupted
    model = built()
    for number, result in enumerate(kept(directory), start=1):
        space = traced(model)
        full = space.extract()
        full.load_state_dict(learned_of(directory / f"stage-{number}" / "full" / "model.pt"))
        model = space.extract(channels=channels_before(space, result.channels, importance_order(space, full)))
    assert_same_state(traced(built()).extract(channels=found.result.channels), model)


def test_the_slim_model_has_the_last_supernets_weights(uninterrupted):
    """Its channels are in another order there, but what they compute is the same."""
    directory, found = uninterrupted
    model = built()
    for number, result in enumerate(kept(directory), start=1):
        model.load_state_dict(learned_of(directory / f"stage-{number}" / "supernet.pt"))
        model = traced(model).extract(channels=result.channels)
    images, _ = batch()
    torch.testing.assert_close(found.slim.eval()(images), model.eval()(images))


def test_a_relative_budget_is_of_the_original_model(uninterrupted):
    """Half of the second stage's model would be a third of the original; the result takes more than that."""
    _, found = uninterrupted
    assert FULL / 3 < 0.9 * FULL / 2 < found.result.costs["flops"] <= FULL / 2


def test_two_caps_hold_at_every_stage(tmp_path):
    work = job(supernet=SupernetConfig(r=1, beta=0.5))
    found = searched(tmp_path, work, StagesConfig(2), "60%+55% params").result
    space = traced(built())
    flops, params = space.flops(), space.params()
    first, last = kept(tmp_path)
    assert (first.costs["flops"] <= 0.8 * flops, first.costs["params"] <= 0.775 * params) == (True, True)
    assert (last.costs["flops"] <= 0.6 * flops, last.costs["params"] <= 0.55 * params) == (True, True)
    assert found.costs == last.costs


def test_the_user_model_is_not_changed(tmp_path):
    model = built()
    space = traced(model)
    full = {"flops": float(space.flops()), "params": float(space.params())}
    search_in_stages(space, EXAMPLE, parse_budget("70%", space), job(), StagesConfig(), tmp_path, full)
    assert_same_state(model, built())


def test_layers_that_are_frozen_stay_so_in_every_stage(tmp_path):
    found = searched(tmp_path, job(freeze=("two",)), StagesConfig(2)).result
    assert set(found.channels) == {"one"}


def _noting(seen: list, build: Callable) -> Callable:
    """`build_supernet`, noting its weights and beta, and itself."""

    def wrapped(model: nn.Module, *arguments, **options):
        supernet = build(model, *arguments, **options)
        weights = {name: each.clone() for name, each in supernet.model.state_dict().items()}
        seen.append((weights, options.get("beta"), supernet))
        return supernet

    return wrapped


@pytest.mark.parametrize("carry_weights", [False, True])
def test_a_stage_starts_from_the_carried_weights_or_the_models_own(carry_weights, tmp_path, monkeypatch):
    seen: list = []
    monkeypatch.setattr(one_stage, "build_supernet", _noting(seen, one_stage.build_supernet))
    searched(tmp_path, stages_config=StagesConfig(2, carry_weights=carry_weights))
    (first, _, supernet), (second, *_) = seen
    original, space = built(), traced(built())
    assert all(torch.equal(value, original.state_dict()[name]) for name, value in first.items())
    learned = built()
    learned.load_state_dict(learned_of(tmp_path / "stage-1" / "supernet.pt"))
    learned = in_order(space, learned, np.argsort(supernet.order))  # as they were before the important ones came first
    channels = channels_before(space, kept(tmp_path)[0].channels, supernet.order)
    start = space.extract(channels=channels, model=learned if carry_weights else original)
    expected = (sort_by_importance(traced(start), start) if carry_weights else start).state_dict()
    assert second.keys() == expected.keys()
    assert [name for name in second if not torch.equal(second[name], expected[name])] == []


def test_stages_with_carried_weights_share_one_training():
    """30 epochs, 0.3 of them for the full network: 9 + 10.5 and 10.5, with a warm-up and milestones that go along."""
    schedule = ScheduleConfig(warmup_epochs=2.0, milestones=(0.5, 15))
    training = TrainConfig(epochs=30, schedule=schedule)
    widths = SamplingConfig(full_share=0.3)
    first, second = plan_jobs(job(training=training, sampling=widths), StagesConfig(2, carry_weights=True))
    assert first.training.epochs == pytest.approx(19.5)
    assert first.sampling.full_share == pytest.approx(9 / 19.5)
    assert first.training.schedule.warmup_epochs == pytest.approx(2.0 * 19.5 / 30)
    assert (second.training.epochs, second.sampling.full_share) == (pytest.approx(10.5), 0.0)
    assert second.training.schedule.milestones == (0.5, 0.5)
    assert (first.supernet.sort_by_importance, second.supernet.sort_by_importance) == (False, True)
    assert first.algorithm == second.algorithm


@pytest.mark.parametrize("carry_weights", [False, True])
def test_stages_of_a_trend_go_the_way_together(carry_weights):
    """A third of the widths each, and the third root of the distance."""
    jobs = plan_jobs(job(algorithm=Trend(100, farthest=8.0)), StagesConfig(3, carry_weights=carry_weights))
    assert [(each.algorithm.samples, each.algorithm.farthest) for each in jobs] == [(34, pytest.approx(2.0))] * 3
    (alone,) = plan_jobs(job(algorithm=Trend()), StagesConfig(1, carry_weights=carry_weights))
    assert alone.algorithm == Trend()


def test_the_default_number_of_stages():
    """Two, but one for a training from scratch where every cost is cut by about half at most."""
    full = {"flops": 1003.0, "params": 10.0}
    half, mixed = (Budget("b", caps) for caps in ((Cap("flops", 500.0),), (Cap("flops", 900.0), Cap("params", 4.0))))
    two = StagesConfig(2, alpha=1.0, carry_weights=True)
    assert stages_for(half, full, "scratch") == StagesConfig()
    assert stages_for(half, {"flops": 1100.0}, "scratch") == two
    assert stages_for(mixed, full, "scratch") == two
    assert stages_for(half, full, "supernet") == two


@pytest.mark.parametrize("config", [StagesConfig(1, carry_weights=True), StagesConfig(3)])
def test_stages_of_their_own_have_whole_trainings(config: StagesConfig):
    work = job()
    assert plan_jobs(work, config) == [work] * config.num_stages


def test_the_shares_of_many_stages_add_up():
    jobs = plan_jobs(job(training=TrainConfig(epochs=20)), StagesConfig(4, carry_weights=True))
    assert sum(each.training.epochs for each in jobs) == pytest.approx(20)
    assert jobs[0].training.epochs * jobs[0].sampling.full_share == pytest.approx(0.3 * 20)  # the default share


def test_a_band_of_the_users_own_is_of_the_original_models_flops(tmp_path, monkeypatch):
    bands, train = [], one_stage.train_supernet
    monkeypatch.setattr(
        one_stage,
        "train_supernet",
        lambda *a, **k: bands.append((a[0].space.flops(), k["sampling"].flops_band)) or train(*a, **k),
    )
    searched(tmp_path, job(sampling=SamplingConfig(flops_band=(0.3, 0.9))), StagesConfig(2))
    (full, first), (narrow, second) = bands
    assert (full, first) == (FULL, (0.3, 0.9))
    assert narrow < 0.9 * FULL
    assert second == (pytest.approx(0.3 * FULL / narrow), 1.0)


def test_what_two_stages_found_is_saved_and_read_as_cut_from_the_original(tmp_path):
    found = searched(tmp_path / "search", stages_config=StagesConfig(2, carry_weights=True))
    save(found.slim, tmp_path / "slim.pt")
    assert_same_state(load(tmp_path / "slim.pt", built()), found.slim)


def test_what_is_found_are_channels_of_the_users_model_though_the_supernet_was_sorted(tmp_path):
    """The last channels of the first layer are read most strongly: sorting brings them to the front."""
    model, space = built(), traced(built())
    with torch.no_grad():
        model.two.weight[:, :4] *= 0.1
    work = job(supernet=SupernetConfig(r=1, sort_by_importance=True), sampling=SamplingConfig(full_share=0.0))
    found = searched(tmp_path, work, StagesConfig(1), model=model).result
    (sorted_places,) = (result.channels for result in kept(tmp_path))
    assert found.channels != sorted_places
    assert {4, 5, 6, 7} <= set(found.channels["one"])
    alike = (
        space.extract(channels=found.channels, model=model),
        space.extract(channels=sorted_places, model=sort_by_importance(space, model)),
    )
    images, _ = batch()
    torch.testing.assert_close(*(each.eval()(images) for each in alike))


def test_a_group_that_cannot_vary_any_more_keeps_its_last_channels(tmp_path, monkeypatch):
    """One channel is left of the first group after stage 1, so the second stage knows only the other one."""
    found = iter([{"one": [3], "two": list(range(1, 12))}, {"two": [0, 4, 5]}])

    def narrowed(weights, space, stage, *arguments):
        channels = next(found)
        assert {group.name for group in space.groups} == set(channels)
        widths = {name: len(kept) for name, kept in channels.items()}
        result = FoundWidths("50%", "none", widths, channels, 0.5, "accuracy", {}, 1.0, 1, 0, 0)
        return SimpleNamespace(model=weights, order=np.arange(space.layout.num_units)), result

    monkeypatch.setattr(stages, "run_stage", narrowed)
    result = searched(tmp_path, stages_config=StagesConfig(2)).result
    assert result.channels == {"one": [3], "two": [1, 5, 6]}
    assert result.widths == {"one": 1, "two": 3}


def assert_same_result(found: StagesResult, expected: StagesResult) -> None:
    assert found.result == expected.result
    assert_same_state(found.slim, expected.slim)


def test_a_second_call_reads_what_was_found(uninterrupted, monkeypatch):
    directory, whole = uninterrupted
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    unread, unasked = Read(), Measured()
    again = searched(directory, job(unread, unasked))
    assert_same_result(again, whole)
    assert unasked.num_asked == 0
    assert unread.num_reads == 6 * 2 * 16  # each training reads 16 examples twice, to know its data
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "stops",
    [
        [("train", 20)],  # the first stage's training
        [("train", 64), ("metric", 1)],  # its last step, then the first score
        [("metric", 9), ("metric", 4)],  # in the first stage's search, twice
        [("metric", 45), ("train", 80), ("metric", 30), ("train", 20)],  # in both parts of stages 2 and 3
    ],
)
def test_interrupted_anywhere_equals_uninterrupted(stops, uninterrupted, tmp_path):
    for kind, number in stops:
        with pytest.raises(KeyboardInterrupt):
            searched(
                tmp_path, job(Read(number if kind == "train" else -1), Measured(number if kind == "metric" else -1))
            )
    assert_same_result(searched(tmp_path), uninterrupted[1])


@pytest.mark.parametrize("carry_weights", [False, True])
def test_interrupted_between_stages(carry_weights, tmp_path, monkeypatch):
    """What a stage needs of those before it comes from their files alone."""
    two = StagesConfig(2, carry_weights=carry_weights)
    whole, run_stage = searched(tmp_path / "whole", stages_config=two), stages.run_stage

    def only_first(weights, space, stage, *arguments):
        if stage.number > 1:
            raise KeyboardInterrupt
        return run_stage(weights, space, stage, *arguments)

    monkeypatch.setattr(stages, "run_stage", only_first)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "parts", stages_config=two)
    assert [path.name for path in (tmp_path / "parts" / "stage-2").iterdir()] == ["start.json"]
    monkeypatch.undo()
    assert_same_result(searched(tmp_path / "parts", stages_config=two), whole)


def search_to_be_killed(directory: str) -> None:
    """What the other process does: the same search, slowed down."""
    torch.set_num_threads(1)

    class Slow(Read):
        def __getitem__(self, index: int):
            time.sleep(0.0005)
            return super().__getitem__(index)

    searched(Path(directory), job(Slow()))


def test_killed_in_every_stage_equals_uninterrupted(uninterrupted, tmp_path):
    """kill -9 while the stages train and search; a process of its own each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cafenet.pipeline.search", "pytest", "torch._dynamo"])  # imported once for all
    for wanted in ("stage-1/log.jsonl", "stage-1/trials.journal", "stage-2/log.jsonl", "stage-3/trials.journal"):
        process = context.Process(target=search_to_be_killed, args=(str(tmp_path),))
        process.start()
        until = time.monotonic() + 60
        while not (tmp_path / wanted).exists() and process.is_alive():
            assert time.monotonic() < until
            time.sleep(0.002)
        process.kill()
        process.join()
        assert process.exitcode == -9
    assert_same_result(searched(tmp_path), uninterrupted[1])


def test_a_result_that_was_torn_is_not_taken(uninterrupted, tmp_path):
    """Results are written in one move; whatever else lies in their place is an error, not a guess."""
    place = tmp_path / "stage-1" / "result-evolution-50pct-stage-1-of-3.json"
    place.parent.mkdir()
    place.write_text('{"format": "cafenet-')
    with pytest.raises(CafeNetError, match=r"result-evolution-50.* must be a search result"):
        searched(tmp_path)
    names = [path.name for path in (uninterrupted[0] / "stage-1").glob("result-*")]
    assert names == [place.name]  # or the file above would not be in the way
    assert json.loads((uninterrupted[0] / "stage-1" / names[0]).read_text())["budget"] == "50% (stage 1 of 3)"


def test_another_network_in_the_same_directory_is_refused(uninterrupted, tmp_path):
    directory, _ = uninterrupted
    model = built(Plain, dropout=0.5)
    model.two = nn.Conv2d(8, 10, 3, padding=1, bias=False)
    model.norm_two, model.head = nn.BatchNorm2d(10), nn.Linear(10, 4)
    space = traced(model)
    with pytest.raises(CafeNetError, match="belongs to another run"):
        search_in_stages(space, EXAMPLE, parse_budget("50%", space), job(), THREE, directory, {"flops": 1e4})


@pytest.mark.parametrize(
    ("texts", "band"),
    [
        (["50%"], (0.35, 0.65)),
        (["75%", "50%", "25%"], (0.175, 0.975)),
        (["90%"], (0.63, 1.0)),
        (["50%+25% params"], (0.175, 0.325)),
        (["3ms"], (0.2, 0.9)),
        (["50%+3ms"], (0.35, 0.65)),
        (["50%", "3ms"], (0.2, 0.9)),
    ],
)
def test_the_band_about_budgets(texts, band):
    space = traced(built())
    assert band_about([parse_budget(text, space) for text in texts], space) == pytest.approx(band, abs=1e-3)


@pytest.mark.parametrize(("flops_band", "sampled"), [("budgets", (0.35, 0.65)), (None, None), ((0.5, 0.9), (0.5, 0.9))])
def test_a_stage_samples_widths_about_its_budgets_unless_told_otherwise(flops_band, sampled, monkeypatch, tmp_path):
    space, seen = traced(built()), []
    monkeypatch.setattr(one_stage, "train_supernet", lambda *_, **options: seen.append(options["sampling"]))
    job = Job(noisy(64, 1), noisy(64, 2), sampling=SamplingConfig(flops_band=flops_band))
    train_stage(built(), space, [parse_budget("50%", space)], job, tmp_path)
    assert seen[0].flops_band == (sampled and pytest.approx(sampled, abs=1e-3))


@pytest.mark.parametrize(("options", "used"), [({}, 0.3), ({"full_share": 0.0}, 0.0), ({"full_share": 0.5}, 0.5)])
def test_a_stage_begins_with_the_full_network_unless_told_otherwise(options, used, monkeypatch, tmp_path):
    space, seen = traced(built()), []
    monkeypatch.setattr(one_stage, "train_supernet", lambda *_, **options: seen.append(options["sampling"]))
    job = Job(noisy(64, 1), noisy(64, 2), sampling=SamplingConfig(**options))
    train_stage(built(), space, [parse_budget("50%", space)], job, tmp_path)
    assert seen[0].full_share == used
