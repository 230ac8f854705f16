"""The whole search in one call, on a model and data of the user's own."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

import cafenet
from cafenet.cli.main import main
from cafenet.common.seals import unsealed
from cafenet.errors import (
    BudgetError,
    CafeNetError,
    DataError,
    RunFileError,
    ScoringError,
    StoreError,
    TraceError,
    TrainingError,
)
from cafenet.pipeline import stages
from cafenet.pipeline.entries import read_entries
from cafenet.pipeline.job import Job
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.result import SearchResult
from cafenet.pipeline.search import search
from cafenet.pipeline.stage_plan import Stage, StagesConfig
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.base import Proposal
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.budget import parse_budget
from cafenet.searching.result import FoundWidths, read_result
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.trainer import Trainer
from tests.helpers.small_training import Plain, assert_same_state, batch, built, config, data, traced

EXAMPLE = torch.zeros(1, 3, 4, 4)
HALF = "supernet/50pct"
"""Where the stages of a search for 50% are."""
TRAIN, VAL = data(64, 1), data(64, 2)


def found(model: nn.Module | None = None, budget: str | list[str] = "50%", **given) -> SearchResult:
    """A search of 8 steps and some ten widths; options of the tree by name."""
    given = {
        "train": config(checkpoint_every=3),
        "algorithm": Evolution(population=4, iterations=2),
        "scoring": ScoringConfig(calibration_size=48, batch_size=16, min_examples=16),
        "quiet": True,
        "trained": False,
        **given,
    }
    given.setdefault("finetune", None if "finetune_epochs" in given else False)
    given.setdefault("baseline", False)
    names = [field.name for field in fields(SearchOptions)]
    options = SearchOptions(**{name: given.pop(name) for name in names if name in given})
    model, train_data, val_data = model or built(), given.pop("train_data", TRAIN), given.pop("val_data", VAL)
    return search(model, train_data, val_data, budget, options=options, **given)


def counted(model: nn.Module) -> tuple[int, int]:
    """FLOPs and parameters of a model as it runs."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model.eval()(EXAMPLE)
    return counter.get_total_flops() // 2, sum(parameter.numel() for parameter in model.parameters())


def test_a_smaller_model_within_the_budget_and_the_original_untouched():
    model = built().eval()
    answer = found(model)
    flops, params = counted(answer.model)
    assert flops <= 0.5 * traced(model).flops()
    assert (flops, params) == (answer.costs["flops"], answer.costs["params"])
    assert type(answer.model) is Plain
    assert_same_state(model, built())
    assert not model.training
    assert answer.space.flops() == traced(model).flops()
    assert isinstance(answer.found, FoundWidths)


def test_the_slim_model_can_be_saved_and_read(tmp_path):
    answer = found()
    cafenet.save(answer.model, tmp_path / "slim.pt")
    assert_same_state(cafenet.load(tmp_path / "slim.pt", built()), answer.model)


def test_the_slim_model_has_statistics_of_its_own(tmp_path):
    """Those of the supernet are a mixture of all widths; here they are averages over the training data."""
    answer = found(directory=tmp_path, scoring=ScoringConfig(calibration_size=64, batch_size=64))
    inputs = TRAIN.tensors[0]
    with torch.no_grad():
        hidden = answer.model.one(inputs)
    torch.testing.assert_close(answer.model.norm_one.running_mean, hidden.mean((0, 2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(answer.model.norm_one.running_var, hidden.var((0, 2, 3)), atol=1e-5, rtol=1e-5)


def test_weights_come_from_the_supernet_unless_retrained(tmp_path):
    answer = found(directory=tmp_path)
    learned = torch.load(tmp_path / HALF / "stage-2" / "supernet.pt", weights_only=True)["model"]["one.weight"]
    (path,) = (tmp_path / HALF / "stage-2").glob("result-*.json")
    places = read_result(path).channels["one"]  # in the supernet, sorted by importance
    assert sorted(learned[places].flatten(1).tolist()) == sorted(answer.model.one.weight.flatten(1).tolist())


def test_a_retrained_model_may_start_from_fresh_weights():
    """It is `train_model` on the channels that were found, whatever the supernet or the user's model had learned."""
    model, settings = built(seed=8), config(seed=4, epochs=2)
    answer = found(model, finetune=settings, seed=4, start="scratch")
    start = answer.space.extract(channels=answer.channels, model=initialised(model, 4))
    assert_same_state(answer.model, train_model(start, EXAMPLE, TRAIN, settings, quiet=True))
    assert counted(answer.model)[0] <= 0.5 * traced(model).flops()


def test_a_retrained_model_starts_from_the_supernet(tmp_path):
    settings = config(seed=4, epochs=2)
    answer = found(finetune=settings, seed=4, directory=tmp_path)
    assert_same_state(answer.model, train_model(found(seed=4).model, EXAMPLE, TRAIN, settings, quiet=True))
    # From scratch, it has a training of its own in the same directory, after the same two stages.
    other = found(finetune=settings, seed=4, start="scratch", directory=tmp_path)
    assert not torch.equal(other.model.one.weight, answer.model.one.weight)
    two = StagesConfig(2, alpha=1.0, carry_weights=True)
    assert_same_state(other.model, found(finetune=settings, seed=4, start="scratch", stages=two).model)


@pytest.mark.parametrize(
    ("start", "budget", "num_stages"), [("scratch", "50%", 1), ("scratch", "45%", 2), ("supernet", "70%", 2)]
)
def test_the_number_of_stages_follows_the_start_and_the_budget(start, budget, num_stages, tmp_path):
    answer = found(start=start, budget=budget, directory=tmp_path)
    assert len(list(tmp_path.glob("supernet/*/stage-*"))) == num_stages
    for again in ("scratch", "supernet"):  # the directory keeps its stages
        assert found(start=again, budget=budget, directory=tmp_path).found == answer.found
    assert len(list(tmp_path.glob("supernet/*/stage-*"))) == num_stages


def test_a_start_by_an_unknown_name():
    with pytest.raises(TrainingError, match="start must be 'supernet' or 'scratch', but is 'fresh'"):
        found(finetune=config(), start="fresh")


def test_the_same_seed_gives_the_same_model():
    first, second = found(), found()
    assert first.found == second.found
    assert_same_state(first.model, second.model)


def test_several_stages(tmp_path):
    answer = found(stages=StagesConfig(3), directory=tmp_path)
    assert sorted(path.name for path in (tmp_path / HALF).iterdir() if path.is_dir()) == [
        "stage-1",
        "stage-2",
        "stage-3",
    ]
    flops, params = counted(answer.model)
    assert (flops, params) == (answer.costs["flops"], answer.costs["params"])
    assert flops <= 0.5 * traced(built()).flops()
    slim = answer.space.extract(channels=answer.channels)
    assert {name: tensor.shape for name, tensor in slim.state_dict().items()} == {
        name: tensor.shape for name, tensor in answer.model.state_dict().items()
    }


class Interrupted:
    """Accuracy that ends in Ctrl-C when it is asked for the n-th time."""

    __name__ = "own"

    def __init__(self, at: int = -1) -> None:
        self.at, self.num_asked = at, 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        self.num_asked += 1
        if self.num_asked == self.at:
            raise KeyboardInterrupt
        return (output.argmax(dim=1) == target).double()


def test_a_second_call_continues_the_first(tmp_path):
    """Interrupted in the search, then complete, then read without any work."""
    retrain = config(epochs=1)
    whole = found(metric=Interrupted(), finetune=retrain)
    with pytest.raises(KeyboardInterrupt):
        found(metric=Interrupted(12), finetune=retrain, directory=tmp_path)
    trained_at = (tmp_path / HALF / "stage-1" / "supernet.pt").stat().st_mtime_ns
    answer = found(metric=Interrupted(), finetune=retrain, directory=tmp_path)
    assert answer.found == whole.found
    assert_same_state(answer.model, whole.model)
    unasked = Interrupted()
    again = found(metric=unasked, finetune=retrain, directory=str(tmp_path))
    assert_same_state(again.model, whole.model)
    assert unasked.num_asked == 1  # whether it fits, before anything else
    assert (tmp_path / HALF / "stage-1" / "supernet.pt").stat().st_mtime_ns == trained_at


def test_other_options_of_the_search_start_it_again(tmp_path):
    """On the same supernet and with the scores that are there; what is described is the last search."""
    found(algorithm=RandomSearch(samples=4), directory=tmp_path)
    trained_at = (tmp_path / HALF / "stage-1" / "supernet.pt").stat().st_mtime_ns
    second = found(algorithm=RandomSearch(samples=9), directory=tmp_path)
    assert second.found == found(algorithm=RandomSearch(samples=9)).found
    assert (tmp_path / HALF / "stage-1" / "supernet.pt").stat().st_mtime_ns == trained_at
    assert "samples: 9" in (tmp_path / "recipe.yaml").read_text()
    with pytest.raises(StoreError, match="scoring"):
        found(algorithm=RandomSearch(samples=9), directory=tmp_path, scoring=ScoringConfig(calibration_size=40))


def test_results_of_another_supernet_are_not_taken(tmp_path):
    """A supernet that was removed and trained in another way is not cut as the old one's scores say."""
    found(directory=tmp_path, stages=StagesConfig(1))
    for checkpoint in tmp_path.rglob("*.pt"):
        checkpoint.unlink()
    with pytest.raises(StoreError, match=r"weights was .*; use another directory"):
        found(directory=tmp_path, stages=StagesConfig(1), train=config(lr=0.3))


def test_a_stage_that_begins_with_other_widths_than_before_has_a_place_of_its_own(tmp_path):
    """Another search of the first stage finds other widths; what the second had found from the old ones is kept."""
    few = found(algorithm=RandomSearch(samples=2), directory=tmp_path, **SINGLE)
    many = found(algorithm=RandomSearch(samples=9), directory=tmp_path, **SINGLE)
    assert [
        len(read_result(path).channels["one"])
        for path in sorted(tmp_path.glob("supernet/50pct/stage-2*/result-*.json"))
    ] == [len(each.channels["one"]) for each in (few, many)]
    assert len(list(tmp_path.glob("supernet/50pct/stage-2*"))) == 2
    assert many.found == found(algorithm=RandomSearch(samples=9), **SINGLE).found
    assert found(algorithm=RandomSearch(samples=2), directory=tmp_path, **SINGLE).found == few.found


def settles_on(*widths: tuple[int, int]):
    """A search that takes these widths of `Plain`, stage by stage."""

    class Settled:
        name = "settled"

        def __init__(self) -> None:
            self.left = list(widths)

        def __repr__(self) -> str:
            return f"Settled({widths})"

        def num_widths(self, feasible) -> int:
            return 1

        def proposals(self, feasible, rng):
            rows = np.array([self.left.pop(0)]) - feasible.bins.widths(feasible.num_bins * 0 + 1) + 1
            yield Proposal(rows, num_kept=1)
            return rows

    return Settled()


SINGLE = {"supernet": SupernetConfig(bins="uniform", num_bins=16), "min_usage": 0.01}
"""Every number of channels is a width."""


def test_what_is_trained_again_in_one_directory_belongs_to_what_was_found(tmp_path):
    """Other first stages lead to the same widths, but with other weights; other widths are trained, too."""
    options = {"finetune": config(epochs=1), **SINGLE}
    for way in (((6, 10), (4, 8)), ((7, 9), (4, 8)), ((7, 9), (4, 7)), ((6, 10), (4, 8))):
        here = found(algorithm=settles_on(*way), directory=tmp_path, **options)
        fresh = found(algorithm=settles_on(*way), **options)
        assert here.channels == fresh.channels
        assert_same_state(here.model, fresh.model)


def test_validation_batches_that_can_be_read_once_serve_both_stages():
    batches = [(VAL.tensors[0][i : i + 16], VAL.tensors[1][i : i + 16]) for i in range(0, 64, 16)]
    assert found(val_data=iter(batches)).found == found(val_data=batches).found


def test_a_smallest_share_is_of_the_original_in_every_stage():
    answer = found(supernet=SupernetConfig(min_width=0.6), algorithm=RandomSearch(samples=9))
    assert answer.widths["one"] >= 0.6 * 8
    assert answer.widths["two"] >= 0.6 * 12


class Grouped(nn.Module):
    """A grouped convolution that has two channels a group."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.tied = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.last = nn.Conv2d(8, 16, 1)
        self.head = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.last(self.tied(self.one(inputs))).mean((2, 3)))


def test_channels_that_are_tied_stay_so_when_a_stage_leaves_one_in_each_group():
    """Such a convolution looks depthwise; its channels may not go one by one, since the original's may not."""
    torch.manual_seed(0)
    model = Grouped()
    space = cafenet.trace(model, EXAMPLE)
    half = {group.name: group.min_width for group in space.groups} | {"last": 16}
    narrow = space.extract(half)
    assert {group.divisor for group in cafenet.trace(narrow, EXAMPLE).groups} != {g.divisor for g in space.groups}
    job, stage = Job(train_data=TRAIN, val_data=VAL), Stage(2, parse_budget("60%", space), beta=1.0)
    assert [group.name for group in stages.narrowed_space(narrow, EXAMPLE, job, space, stage).groups] == ["last"]


def test_a_stage_that_can_not_be_cut_to_the_budget_begins_with_the_whole_model(tmp_path):
    """The first leaves one channel of each layer, so that nothing varies; all of the original does in the second."""
    answer = found(budget="60%", algorithm=settles_on((1, 1), (5, 9)), directory=tmp_path, **SINGLE)
    assert dict(answer.widths) == {"one": 5, "two": 9}
    start = json.loads((tmp_path / "supernet" / "60pct" / "stage-2" / "start.json").read_text())
    assert unsealed(start) == {}
    first, second = (
        torch.load(tmp_path / "supernet" / "60pct" / f"stage-{n}" / "supernet.pt", weights_only=True)["model"]
        for n in (1, 2)
    )
    assert {name: value.shape for name, value in first.items()} == {n: value.shape for n, value in second.items()}


def test_the_latency_of_the_whole_is_measured_once(monkeypatch):
    measured = iter([10.0, 9.0, 8.0])
    monkeypatch.setattr("cafenet.pipeline.whole_search.measure_latency", lambda *_: next(measured))
    seen = []
    monkeypatch.setattr(
        "cafenet.pipeline.whole_search.plan_stages", lambda budget, full, *_: seen.append((budget, full)) or [][0]
    )
    with pytest.raises(IndexError):
        found(budget="95% latency")
    [(budget, full)] = seen
    assert (budget.caps[0].limit, full["latency_ms"]) == (pytest.approx(9.5), 10.0)


def test_a_budget_that_only_a_later_stage_could_not_meet_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("cafenet.pipeline.one_stage.train_supernet", None)  # nothing may be trained
    with pytest.raises(BudgetError, match="smallest"):
        found(budget="2%")


def test_without_a_directory_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found()
    assert list(tmp_path.iterdir()) == []


def test_loaders_loss_and_metric_of_the_users_own(tmp_path):
    asked = []

    def own_loss(output: Tensor, target: Tensor) -> Tensor:
        asked.append(len(target))
        return nn.functional.cross_entropy(output, target)

    answer = found(
        train_data=DataLoader(TRAIN, batch_size=16, shuffle=True),
        val_data=DataLoader(VAL, batch_size=20),
        loss=own_loss,
        metric="negative_loss",
        algorithm=RandomSearch(samples=5),
        directory=tmp_path,
    )
    assert 16 in asked
    assert answer.found.metric == "negative_loss"
    assert answer.score < 0
    assert answer.found.algorithm == "random"


class ByNumber:
    """A length and examples by number, which is all that a DataLoader asks for."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


@pytest.mark.parametrize("kind", [ByNumber, list])
def test_examples_that_are_no_dataset(kind):
    expected = found()
    assert found(train_data=kind(TRAIN), val_data=kind(VAL)).found == expected.found
    attributes = [(image, torch.eye(4)[label]) for image, label in TRAIN]
    validation = DataLoader([(image, torch.eye(4)[label]) for image, label in VAL])
    assert found(train_data=kind(attributes), val_data=validation, loss="bce").score > 0


def test_class_probabilities_are_scored_as_classes():
    """What is learned with cross entropy is no list of attributes."""
    images, labels = TRAIN.tensors
    soft = torch.utils.data.TensorDataset(images, torch.eye(4)[labels])
    validation = torch.utils.data.TensorDataset(VAL.tensors[0], torch.eye(4)[VAL.tensors[1]])
    expected, answer = found(), found(train_data=soft, val_data=validation)
    assert answer.score == expected.score
    accuracy = cafenet.evaluate(answer.model, VAL)
    assert cafenet.evaluate(answer.model, validation, loss="cross_entropy") == accuracy
    assert "per_attribute" in cafenet.evaluate(answer.model, validation)


class Keeping(Plain):
    """Keeps a table of the channels at its first use in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.table = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        if self.table is None:
            self.table = 2 * self.norm_one.weight[:, None, None]
        x = nn.functional.relu(self.norm_two(self.two(self.table * nn.functional.relu(self.norm_one(self.one(x))))))
        return self.head(x.mean((2, 3)))


def test_a_table_that_a_forward_keeps_is_not_left_in_the_model():
    model = built(Keeping)
    assert set(found(model).widths) == {"one", "two"}
    assert model.table is None


def test_a_second_start_within_a_latency_measures_nothing_anew(tmp_path, monkeypatch):
    """Neither a busier machine nor a faster one changes what a budget in milliseconds means."""
    machine = {"factor": 1.0}

    def measured(model, *arguments):
        return machine["factor"] * (1.0 + 1e-3 * sum(parameter.numel() for parameter in model.parameters()))

    for place in ("pipeline.whole_search", "pipeline.checks", "searching.width_search", "searching.latency.estimate"):
        monkeypatch.setattr(f"cafenet.{place}.measure_latency", measured)
    budget = f"{0.8 * measured(built()):.3f}ms"
    first = found(budget=budget, directory=tmp_path)
    for machine["factor"] in (5.0, 0.5):
        assert found(budget=budget, directory=tmp_path).found == first.found


def test_numbers_of_numpy_among_the_options(tmp_path):
    optimizer = cafenet.OptimizerConfig(lr=np.float32(0.1), weight_decay=np.float64(1e-4))
    options = {
        "train": config(epochs=np.float64(2), optimizer=optimizer),
        "seed": np.int64(3),
        "stages": StagesConfig(np.int64(2), np.float64(1.0), carry_weights=True),
        "num_finalists": np.int64(2),
        "scoring": ScoringConfig(calibration_size=np.int64(48), batch_size=np.int64(16), min_examples=16),
        "directory": tmp_path,
    }
    first = found(**options)
    assert found(**options).found == first.found
    assert found(**{**options, "stages": None}).found == first.found


def test_one_channel_everywhere_can_be_trained_on():
    narrow = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))
    answer = found(narrow, "30%", finetune=config(epochs=1))
    assert dict(answer.widths) == {"0": 1}


def test_other_budgets():
    space = traced(built())
    answer = found(budget="60% params")
    assert counted(answer.model)[1] <= 0.6 * space.params() < counted(built())[1]
    assert found(budget="9K").costs["flops"] <= 9000


def test_a_wrapped_model_is_the_model_inside():
    model = built()
    assert type(found(nn.DataParallel(model)).model) is Plain
    assert_same_state(model, built())


def test_layers_can_be_frozen():
    answer = found(freeze=("two",))
    assert set(answer.widths) == {"one"}
    assert answer.model.two.weight.shape[0] == 12


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": "1%"}, BudgetError, "smallest subnet"),
        ({"budget": "half"}, BudgetError, "must be a number with its unit, but got 'half'"),
        ({"budget": 0.5}, BudgetError, 'must be a text, but is 0.5; write "50%"'),
        ({"budget": "0.000001ms"}, BudgetError, "smallest subnet"),
        (
            {"val_data": [(torch.zeros(3, 4, 4), torch.zeros(4))]},
            ScoringError,
            "must take the inputs of the validation data",
        ),
        ({"val_data": []}, ScoringError, "validation data must hold at least one example"),
        ({"metric": "acuracy"}, ScoringError, "metric must be"),
        ({"loss": "mse"}, CafeNetError, "loss must be"),
        ({"freeze": ("absent",)}, TraceError, "'absent' matches none"),
        ({"train_data": data(4)}, CafeNetError, "must fill one step"),
        ({"finetune": config(batch_size=100)}, TrainingError, "must fill one step of 1 x 100 examples"),
        ({"train": {"epochs": 2}}, TrainingError, r"train must be a TrainConfig, as in .*, but is {'epochs': 2}"),
        ({"finetune": 3}, TrainingError, r"finetune must be a TrainConfig, as in .*, True or False or None, but is 3"),
        ({"stages": 2}, BudgetError, "stages must be a StagesConfig"),
        ({"supernet": "uniform"}, BudgetError, "supernet must be a SupernetConfig"),
        ({"scoring": SamplingConfig()}, BudgetError, "scoring must be a ScoringConfig"),
        ({"epochs": 3}, TrainingError, "must not be given together with train or finetune"),
        ({"train": None, "epochs": 3, "finetune": config()}, TrainingError, "must not be given together"),
        ({"train": config(seed=3)}, TrainingError, "train.seed must be left out, since seed decides, but is 3"),
        ({"seed": -1}, TrainingError, "seed must be a whole number from 0 to"),
        ({"budget": []}, BudgetError, "but there is none"),
        ({"budget": "60%, 60%"}, BudgetError, "budgets must differ, but '60%' and '60%' are the same"),
        ({"budget": ["60%", "2%"]}, BudgetError, "smallest subnet"),
        ({"quiet": "yes"}, TrainingError, "quiet must be True or False, but is 'yes'"),
        ({"loss": 3}, TrainingError, r"loss must be a name or a function of \(output, target\), but is 3"),
        ({"metric": 3}, ScoringError, r"metric must be a name or a function of \(output, target\), but is 3"),
        ({"model": built().to("meta")}, TrainingError, r"must hold values, but its \S+ is on the meta device"),
        (
            {"val_data": torch.utils.data.TensorDataset(batch(64)[0], batch(64)[1] + 2)},
            ScoringError,
            "labels of the validation data must lie in 0 to 3, the model's number of outputs, but lie in 2 to 5",
        ),
        (
            {"val_data": torch.utils.data.TensorDataset(batch(64)[0], batch(64)[1] - 1)},
            ScoringError,
            "labels of the validation data must lie in 0 to 3, .* but lie in -1 to 2",
        ),
        (
            {"train_data": [(torch.zeros(3, 4, 4 + n % 2), n % 4) for n in range(64)]},
            DataError,
            r"must have one shape, but some are \[3, 4, 4\] and others \[3, 4, 5\]; resize or pad",
        ),
        (
            {"val_data": [(Image.new("RGB", (4, 4)), n % 4) for n in range(16)]},
            DataError,
            r"but one holds a PIL.Image.Image; give the data set a transform",
        ),
        (
            {"finetune": config(label_smoothing=0.1), "loss": nn.functional.cross_entropy},
            TrainingError,
            "losses by name",
        ),
        ({"algorithm": "trend"}, BudgetError, r"must be one such as cafenet.Trend\(samples=300\), but is 'trend'"),
        ({"algorithm": Evolution}, BudgetError, "algorithm must be one such as"),
        ({"metric": lambda output, target: output}, ScoringError, "returned shape"),
    ],
)
def test_mistakes_are_errors_of_ours(options, error, message, tmp_path: Path):
    """Said before a supernet is trained."""
    with pytest.raises(error, match=message):
        found(directory=tmp_path, **options)
    assert list(tmp_path.rglob("*.pt")) == []


def test_the_directory_of_a_run_is_none_of_a_search(tmp_path):
    (tmp_path / "recipe.yaml").write_text("seed: 0\n")
    with pytest.raises(TrainingError, match=r"must be a directory of `cafenet.search`, but `cafenet run` made it"):
        found(directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize("make", [lambda path: path / "file", lambda path: "/proc", lambda path: "a\0b"])
@pytest.mark.parametrize("use", ["search", "train_model"])
def test_a_directory_that_cannot_be_written(make, use, tmp_path):
    (tmp_path / "file").write_text("taken")
    message = r"^directory must be one that files can be written into, but .* is not: \S"
    if use == "search":
        with pytest.raises(TrainingError, match=message):
            found(directory=make(tmp_path))
    else:
        with pytest.raises(TrainingError, match=message):
            train_model(built(), EXAMPLE, TRAIN, config(), directory=make(tmp_path))


@pytest.mark.parametrize("directory", ["x" * 5000, "", 3, ["runs"]])
def test_a_directory_that_is_none(directory):
    with pytest.raises(TrainingError, match=r"^directory must be one that files can be written into") as caught:
        found(directory=directory)
    assert len(str(caught.value)) < 300


def test_labels_that_do_not_fit():
    images, labels = batch(64)
    with pytest.raises(CafeNetError, match="labels must lie in 0 to 3"):
        found(train_data=torch.utils.data.TensorDataset(images, labels + 2))


def test_a_page_is_made_of_its_directory(tmp_path, capsys):
    answer = found(directory=tmp_path / "mine")
    assert main(["report", str(tmp_path / "mine")]) == 0
    page = (tmp_path / "mine" / "report.html").read_text()
    assert "Plain at 50%" in page
    assert ("Narrowing all layers alike is better at 50% than what the search" in page) == answer.is_uniform
    assert "of the computation" in page
    assert f"{answer.gain.after.score:.2%}" in page
    for name in ("widths", "accuracy-flops", "progress", "histogram", "training", "bins"):
        assert f'id="figure-{name}"' in page
    assert "Not there yet" not in page
    assert "cafenet.search(model, train_data, val_data, &#x27;50%&#x27;" in page


class Own:
    """An algorithm that is no dataclass."""

    name = "own"

    def num_widths(self, feasible):
        return 3

    def proposals(self, feasible, rng):
        yield Proposal(feasible.sample(3, rng), num_kept=1)

    def __repr__(self):
        return "<Own>"


def test_an_own_algorithm_of_any_kind(tmp_path):
    answer = found(algorithm=Own(), directory=tmp_path / "mine")
    assert answer.found.algorithm == "own"
    assert main(["report", str(tmp_path / "mine")]) == 0
    assert "CafeNet (own) 50%" in (tmp_path / "mine" / "report.html").read_text()


def test_numbers_of_epochs_are_short_for_trainings():
    short = found(train=None, epochs=0.5, finetune_epochs=0.25, train_data=data(1024, 1))
    long = found(
        train=cafenet.TrainConfig(epochs=0.5, batch_size=32),  # what suits 1,024 examples
        finetune=cafenet.TrainConfig(epochs=0.25, batch_size=32),
        train_data=data(1024, 1),
    )
    assert short.found == long.found
    assert_same_state(short.model, long.model)


def test_example_inputs_are_those_of_a_training_example():
    assert found(example_inputs=EXAMPLE).found == found().found
    assert found().example_inputs.shape == EXAMPLE.shape
    named = [({"x": image}, label) for image, label in TRAIN]
    assert set(found(train_data=named, val_data=[({"x": VAL.tensors[0]}, VAL.tensors[1])]).example_inputs) == {"x"}


def test_the_seed_is_that_of_all_parts(tmp_path):
    first, other = found(finetune=config()), found(finetune=config(), seed=5)
    assert other.found.seed == 5
    assert not torch.equal(first.model.one.weight, other.model.one.weight)
    assert_same_state(other.model, found(finetune=config(seed=5), train=config(seed=5), seed=5).model)


class TwoOutputs(Plain):
    """Returns what lies before the head, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = nn.functional.relu(self.norm_one(self.one(x)))
        return super().forward(x), hidden


def test_outputs_that_do_not_matter_may_vary():
    parts = {
        "loss": lambda output, target: nn.functional.cross_entropy(output[0], target),
        "metric": lambda output, target: (output[0].argmax(dim=1) == target).double(),
    }
    assert set(found(built(TwoOutputs), **parts).widths) == {"two"}
    assert set(found(built(TwoOutputs), outputs=0, **parts).widths) == {"one", "two"}


def test_a_result_can_be_saved_exported_and_reported(tmp_path):
    answer = found(directory=tmp_path / "mine")
    answer.save(tmp_path / "slim.pt")
    assert_same_state(cafenet.load(tmp_path / "slim.pt", built()), answer.model)
    assert answer.export(tmp_path / "slim.pt2") < 1e-3
    assert answer.report() == tmp_path / "mine" / "report.html"
    assert "Plain at 50%" in (tmp_path / "mine" / "report.html").read_text()
    assert "50% by evolution" in repr(answer)


def test_a_report_needs_a_directory():
    with pytest.raises(RunFileError, match=r"this one has none; give cafenet.search a directory="):
        found().report()


@pytest.mark.parametrize("budget", ["60%,45%", ["60%", " 45%"]])
def test_several_budgets_are_as_many_searches(budget, tmp_path, monkeypatch):
    """The full network that both begin with is trained once."""
    trained, plain = [], Trainer._train_step

    def counted(self, batches):
        trained.append(self.directory.name)
        return plain(self, batches)

    alone = [found(budget=text, finetune=config(epochs=0.5)) for text in ("60%", "45%")]
    monkeypatch.setattr(Trainer, "_train_step", counted)
    answers = found(budget=budget, finetune=config(epochs=0.5), directory=tmp_path)
    assert (len(answers), answers.budgets) == (2, ("60%", "45%"))
    assert answers["45%"] is answers[1]
    for answer, expected in zip(answers, alone, strict=True):
        assert answer.found == expected.found
        assert_same_state(answer.model, expected.model)
    assert trained.count("full") == round(0.3 * 8)
    assert sorted(path.name for path in (tmp_path / "supernet").iterdir()) == ["45pct", "60pct"]
    assert [entry.budget for entry in read_entries(tmp_path)] == ["60%", "45%"]
    trained.clear()
    again = found(budget=budget, finetune=config(epochs=0.5), directory=tmp_path)
    assert [each.found for each in again] == [each.found for each in answers]
    assert trained == []
    assert answers.report() == answers[0].report() == answers[1].report() == tmp_path / "report.html"
    with pytest.raises(BudgetError, match="must be one of 60%, 45%, but is '50%'"):
        answers["50%"]


def test_one_budget_of_a_list_is_a_list_of_one():
    (answer,) = found(budget=["50%"])
    assert answer.found == found().found
