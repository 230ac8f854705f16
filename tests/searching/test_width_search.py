"""The search from end to end: budgets are kept by the model itself, work is never done twice, mistakes end at once."""

import itertools
import re
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import cafenet.searching.width_search
from cafenet.errors import BudgetError, CafeNetError, ScoringError, StoreError
from cafenet.scoring.recalibration import PreparedSubnet
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency import estimate as latency_model
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.searching.search_config import SearchConfig
from cafenet.searching.width_search import search_widths
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.supernet.supernet import Supernet
from tests.helpers.small_search import TRAIN, VALIDATION, counted, every_vector, noisy, tiny, untrained
from tests.helpers.small_training import built, supernet_of

IMAGES, LABELS = VALIDATION.tensors
IMAGE = torch.zeros(1, 3, 4, 4)
SHORT = Evolution(population=10, iterations=3, num_parents=4)
SCORING = ScoringConfig(batch_size=32, min_examples=16)
ALGORITHMS = [SHORT, replace(SHORT, screened=1), RandomSearch(samples=25), Greedy(step=0.1), Trend(samples=25)]


def search(supernet, budget="50%", **options):
    options = {"algorithm": SHORT, "scoring": SCORING, "quiet": True, **options}
    validation = options.pop("validation", VALIDATION)
    return search_widths(supernet, options.pop("train", TRAIN), validation, budget, **options)


@pytest.fixture
def asked(monkeypatch):
    """What scorers were asked for: width vectors, and whether exactly."""
    asked, score = [], Scorer.score

    def noted(self, bin_counts, bar=None, *, exact=False):
        asked.append((tuple(bin_counts.tolist()), exact))
        return score(self, bin_counts, bar, exact=exact)

    monkeypatch.setattr(Scorer, "score", noted)
    return asked


def slim_of(supernet, result):
    return supernet.space.extract(channels=result.channels, model=supernet.model)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_the_result_is_what_it_says(algorithm):
    supernet = tiny()
    (result,) = search(supernet, algorithm=algorithm, config=SearchConfig(seed=5))
    slim = slim_of(supernet, result)
    assert {name: len(kept) for name, kept in result.channels.items()} == result.widths
    assert counted(slim, IMAGE) == result.costs
    assert result.usage == result.costs["flops"] / (supernet.space.flops() / 2)
    assert result.usage <= 1
    assert (result.budget, result.algorithm, result.metric, result.seed) == ("50%", algorithm.name, "accuracy", 5)
    assert 0 <= result.num_dropped < result.num_scored
    scorer = Scorer(supernet, TRAIN, VALIDATION, config=SCORING)
    bin_counts = supernet.binned.bins.bin_counts(list(result.widths.values()))
    assert scorer.score(bin_counts, exact=True).value == result.score
    assert accuracy_of(slim) == pytest.approx(result.score, abs=1.01 / len(LABELS))


@torch.no_grad()
def accuracy_of(slim):
    """With statistics of its own."""
    for norm in (slim.norm_one, slim.norm_two):
        norm.reset_running_stats()
        norm.momentum = None
    slim.train()
    slim.dropout.eval()
    for images in TRAIN.tensors[0].split(32):
        slim(images)
    return float((slim.eval()(IMAGES).argmax(1) == LABELS).double().mean())


@pytest.mark.parametrize("algorithm", [Evolution(), RandomSearch()], ids=repr)
def test_the_best_width_of_a_small_space_is_found(algorithm):
    supernet = tiny(beta=0.5)
    scorer = Scorer(supernet, TRAIN, VALIDATION, config=SCORING)
    config = SearchConfig(band=(0.85, 1.0), min_usage=0.85)
    (result,) = search(supernet, "60%", algorithm=algorithm, config=config)
    rows = every_vector(supernet.binned.num_bins)
    usage = supernet.space.flops(supernet.binned.bins.widths(rows)) / (0.6 * supernet.space.flops())
    scores = [scorer.score(row, exact=True).value for row in rows[(usage >= 0.85) & (usage <= 1)]]
    assert len(scores) > 5
    assert result.score == max(scores)


class Net(nn.Module):
    """Convolutions one after the other; some are added to what they read, some followed by a depthwise one."""

    def __init__(self, widths, residual, depthwise):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.convs, self.norms, self.mixers, self.residual = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), residual
        for number, (before, after) in enumerate(itertools.pairwise(widths)):
            self.convs.append(nn.Conv2d(before, after, 1 + 2 * (number % 2), padding=number % 2, bias=False))
            self.norms.append(nn.BatchNorm2d(after))
            self.mixers.append(nn.Conv2d(after, after, 3, padding=1, groups=after) if depthwise else nn.Identity())
        self.head = nn.Linear(widths[-1], 4)

    def forward(self, x):
        x = self.stem(x).relu()
        for conv, norm, mixer in zip(self.convs, self.norms, self.mixers, strict=True):
            y = mixer(norm(conv(x)).relu())
            x = x + y if self.residual and y.shape[1] == x.shape[1] else y
        return self.head(x.mean((2, 3)))


@st.composite
def problems(draw):
    """A supernet and a budget: the model's counted costs times some shares between the smallest subnet's and 1."""
    widths = draw(st.lists(st.integers(2, 9), min_size=2, max_size=4))
    model = built(Net, widths=widths, residual=draw(st.booleans()), depthwise=draw(st.booleans()))
    space = cafenet.trace(model, IMAGE)
    bins = flops_sensitive_bins(
        space, draw(st.sampled_from([0.5, 1.0, 2.0])), min_width=draw(st.sampled_from([1, 0.25]))
    )
    assume(bins.num_bins.max() > 1)  # else no width has any freedom
    supernet = Supernet(model, space, bins, draw(st.sampled_from([LocallyFree(0), LocallyFree(1), Bilateral()])))
    smallest = counted(space.extract(bins.widths(np.ones_like(bins.num_bins)).tolist()), IMAGE)
    full = counted(model, IMAGE)
    costs = draw(st.sampled_from([["flops"], ["params"], ["flops", "params"]]))
    limits = {cost: smallest[cost] + draw(st.floats(0, 0.98)) * (full[cost] - smallest[cost]) for cost in costs}
    if draw(st.booleans()):  # in percent, rounded up to what is written
        texts = {cost: f"{100 * limit / full[cost] + 5e-7:.6f}" for cost, limit in limits.items()}
        limits = {cost: float(text) / 100 * full[cost] for cost, text in texts.items()}
        return supernet, "+".join(f"{text}% {cost}" for cost, text in texts.items()), limits
    limits = {cost: int(limit) for cost, limit in limits.items()}
    return supernet, "+".join(f"{limit} {cost}" for cost, limit in limits.items()), limits


@settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(), algorithm=st.sampled_from(ALGORITHMS), seed=st.integers(0, 9))
def test_every_budget_is_kept_by_the_extracted_model_and_used_where_that_can_be(problem, algorithm, seed):
    supernet, budget, limits = problem
    if supernet.binned.bins.search_space_size == 1:
        return
    train, validation = noisy(16, 1), noisy(16, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these supernets have learned nothing
        (result,) = search(
            supernet, budget, algorithm=algorithm, train=train, validation=validation, config=SearchConfig(seed=seed)
        )
    costs = counted(slim_of(supernet, result), IMAGE)
    assert costs == result.costs
    for cost, limit in limits.items():
        assert costs[cost] <= limit * (1 + 1e-12)
    widths = supernet.binned.bins.widths(every_vector(supernet.binned.num_bins))
    priced = {"flops": supernet.space.flops(widths), "params": supernet.space.params(widths)}
    usages = np.max([priced[cost] / limit for cost, limit in limits.items()], axis=0)
    best = usages[usages <= 1].max()
    used = max(costs[cost] / limit for cost, limit in limits.items())
    assert used >= (0.99 if best >= 0.99 else 0.95 * best)  # less is enough in steps of a twentieth
    assert result.usage == pytest.approx(used)


def test_the_result_comes_within_one_percent_of_a_budget_that_it_can_meet():
    supernet = tiny()
    for budget in (30, 55, 80):
        (result,) = search(supernet, f"{budget}%", algorithm=RandomSearch(samples=8))
        rows = supernet.binned.bins.widths(every_vector(supernet.binned.num_bins))
        usages = supernet.space.flops(rows) / (budget / 100 * supernet.space.flops())
        can = bool(((usages >= 0.99) & (usages <= 1)).any())
        assert (0.99 <= result.usage <= 1) == can


def test_less_of_the_budget_is_used_if_asked():
    (result,) = search(tiny(), "50%", config=SearchConfig(min_usage=0.0, band=(0.3, 0.6)))
    assert result.usage <= 0.6


@pytest.mark.parametrize("budget", ["75%,50%,25%", ["75%,50%", "25%"]])
def test_several_budgets_at_once(budget):
    supernet = tiny()
    results = search(supernet, budget)
    assert [result.budget for result in results] == ["75%", "50%", "25%"]
    for share, result in zip((0.75, 0.5, 0.25), results, strict=True):
        assert counted(slim_of(supernet, result), IMAGE)["flops"] <= share * supernet.space.flops()
    (alone,) = search(supernet, "50%")
    assert results[1] == replace(alone, num_dropped=results[1].num_dropped)


def test_equal_seeds_find_the_same_and_others_look_elsewhere(asked):
    first, again, other = (search(tiny(), config=SearchConfig(seed=seed)) for seed in (1, 1, 2))
    assert first == again
    third = len(asked) // 3
    assert asked[:third] == asked[third : 2 * third]
    assert asked[:5] != asked[2 * third : 2 * third + 5]
    assert other[0].seed == 2


def test_a_supernet_is_left_as_it_was():
    supernet = tiny().train()
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    random = torch.get_rng_state()
    search(supernet)
    assert all(torch.equal(value, before[name]) for name, value in supernet.state_dict().items())
    assert supernet.model.training
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("storage", ["trials.journal", "sqlite"])
def test_no_width_is_scored_twice_by_any_algorithm_or_restart(storage, asked, tmp_path):
    path = f"sqlite:///{tmp_path}/trials.db" if storage == "sqlite" else tmp_path / storage
    keeps_all = replace(SCORING, drop_below=1e9)  # a width that was dropped may be scored to the end later
    algorithms = ALGORITHMS[::2] if storage == "sqlite" else ALGORITHMS

    def run():
        return [
            search(tiny(), "60%,45%", algorithm=algorithm, storage=path, scoring=keeps_all) for algorithm in algorithms
        ]

    first, num_asked = run(), len(asked)
    assert run() == first
    assert len(asked) == num_asked
    assert len(set(asked)) == len(asked)


def test_a_finished_search_is_not_run_again(asked, tmp_path):
    first = search(tiny(), "60%,45%", storage=tmp_path / "trials.journal")
    num_asked = len(asked)
    assert search(tiny(), "60%,45%", storage=tmp_path / "trials.journal") == first
    assert len(asked) == num_asked


def test_studies_of_other_names_are_separate(asked, tmp_path):
    first = search(tiny(), storage=tmp_path / "trials.journal", study="first")
    num_asked = len(asked)
    assert search(tiny(), storage=tmp_path / "trials.journal", study="second") == first
    assert len(asked) == 2 * num_asked


def test_one_candidate_a_width_is_not_scored_exactly_once_more(asked):
    search(tiny(LocallyFree(0)))
    widths = [bin_counts for bin_counts, _ in asked]
    assert len(set(widths)) == len(widths)


def chance_warnings(supernet, validation):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search(supernet, validation=validation, config=SearchConfig(band=(0.5, 1.0)))
    return [str(each.message) for each in caught if "look like chance" in str(each.message)]


def test_scores_like_chance_are_warned_of_and_others_are_not():
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(0))
    assert len(chance_warnings(untrained(beta=0.5), TensorDataset(IMAGES, LABELS[order]))) == 1
    assert chance_warnings(tiny(beta=0.5), VALIDATION) == []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"budget": "101%"}, BudgetError, "a relative budget must be below 100%, but got '101%'"),
        ({"budget": "100%"}, BudgetError, "a relative budget must be below 100%"),
        ({"budget": "20K"}, BudgetError, "`budget < full model` must hold, but got 20,000 FLOPs and 17,328 FLOPs"),
        ({"budget": "3%"}, BudgetError, "the smallest subnet costs 728 FLOPs"),
        ({"budget": "50%,3%"}, BudgetError, "the smallest subnet costs 728 FLOPs"),
        ({"budget": "50%+1% params"}, BudgetError, "the smallest subnet costs 63 params"),
        ({"budget": "half"}, BudgetError, "a budget must be a number with its unit, but got 'half'"),
        (
            {"metric": "acuracy"},
            ScoringError,
            "metric must be 'accuracy', 'negative_loss', 'perplexity', 'token_accuracy' or a function",
        ),
        ({"validation": []}, ScoringError, "validation data must hold at least one example, but is empty"),
        ({"train": []}, ScoringError, "training data must hold at least one example, but is empty"),
        (
            {"storage": "postgresql://nobody:secret@127.0.0.1:1/x"},
            StoreError,
            "postgresql://nobody@127.0.0.1:1/x must be",
        ),
        ({"storage": "/proc/nowhere/trials.journal"}, StoreError, "must be a readable and writable journal file"),
    ],
)
def test_mistakes_end_before_anything_is_scored(options, kind, message, asked):
    with pytest.raises(kind, match=re.escape(message)) as caught:
        search(tiny(), **options)
    assert asked == []
    assert "secret" not in str(caught.value)


def other_weights():
    supernet = tiny()
    with torch.no_grad():
        supernet.model.one.weight[0, 0, 0, 0] += 1e-3
    return supernet


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"supernet": other_weights}, "weights"),
        ({"supernet": lambda: tiny(LocallyFree(2))}, "sharing"),
        ({"supernet": lambda: supernet_of(built())}, "bins"),
        ({"metric": "negative_loss"}, "metric"),
        ({"scoring": ScoringConfig(batch_size=16)}, "scoring"),
        ({"validation": noisy(64, 7)}, "validation"),
        ({"train": noisy(64, 7)}, "calibration"),
    ],
)
def test_a_study_of_another_supernet_or_data_is_refused(options, differs, asked, tmp_path):
    search(tiny(), storage=tmp_path / "trials.journal", algorithm=RandomSearch(samples=1))
    asked.clear()
    supernet = options.pop("supernet", tiny)()
    with pytest.raises(StoreError, match=rf"must belong to this supernet and data.*\b{differs} was"):
        search(supernet, storage=tmp_path / "trials.journal", **options)
    assert asked == []


def test_the_order_of_the_validation_set_is_no_other_data(asked, tmp_path):
    order = LABELS.argsort()
    search(tiny(), storage=tmp_path / "trials.journal")
    num_asked = len(asked)
    search(tiny(), storage=tmp_path / "trials.journal", validation=TensorDataset(IMAGES[order], LABELS[order]))
    assert len(asked) == num_asked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search_workers": 0}, "search_workers must be a whole number from 1 to 4096, but is 0"),
        ({"num_finalists": 0}, "num_finalists must be a whole number of at least 1, but is 0"),
        ({"min_usage": 1.5}, "min_usage must be a number from 0 to 1, but is 1.5"),
        ({"min_usage": -0.1}, "min_usage must be a number from 0 to 1, but is -0.1"),
        ({"seed": -1}, "seed must be a whole number from 0 to 9223372036854775807, but is -1"),
        ({"band": (0.9, 0.5)}, "band must be .* in rising order, but is"),
    ],
)
def test_wrong_options(options, message, asked):
    with pytest.raises(CafeNetError, match=message):
        search(tiny(), config=SearchConfig(**options))
    assert asked == []


def test_weights_in_half_precision():
    supernet = tiny()
    supernet.model.bfloat16()
    images = IMAGES[:64].bfloat16()
    data = TensorDataset(images, LABELS[:64])
    (result,) = search(supernet, train=data, validation=data)
    assert result.score > 0.5


def test_progress_is_shown_unless_quiet(capsys):
    search(tiny())
    assert capsys.readouterr().err == ""
    search(tiny(), quiet=False)
    assert "search 50%: step" in capsys.readouterr().err


class Wide(nn.Module):
    """Its width decides how long it takes."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 64, 3, padding=1)
        self.two = nn.Conv2d(64, 64, 3, padding=1)
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.two(self.one(x).relu()).relu().mean((2, 3)))


def wide():
    model = built(Wide)
    space = cafenet.trace(model, torch.zeros(1, 3, 32, 32))
    return Supernet(model, space, flops_sensitive_bins(space, 4.0), LocallyFree(0))


@pytest.mark.filterwarnings("ignore:scores look like chance")
@pytest.mark.slow  # a busy machine can make any latency too long
def test_a_latency_is_met_by_a_real_measurement(monkeypatch):
    data = TensorDataset(torch.randn(12, 3, 32, 32), torch.arange(12) % 4)
    supernet, measured = wide(), []

    def noted(model, *args):
        measured.append((model, measure_latency(model, *args)))
        return measured[-1][1]

    monkeypatch.setattr(cafenet.searching.width_search, "measure_latency", noted)
    (result,) = search(
        supernet,
        "80% latency",
        train=data,
        validation=data,
        algorithm=RandomSearch(samples=6),
        latency=LatencyConfig(repeats=9),
        config=SearchConfig(band=(0.3, 0.7), min_usage=0.0),  # far enough below to be met on a busy machine
    )
    (full, full_ms), *_, (slim, _) = measured
    checked = [ms for model, ms in measured[1:] if model.one.out_channels == slim.one.out_channels][-5:]
    assert full.one.out_channels == full.two.out_channels == 64
    assert [slim.one.out_channels, slim.two.out_channels] == list(result.widths.values())
    assert 0 < result.costs["latency_ms"] == np.median(checked)
    assert max(checked) <= 0.8 * full_ms


def test_a_measured_latency_decides_and_the_next_best_is_tried(monkeypatch):
    """Every channel takes a microsecond, and an odd number of them a whole second, which no estimate foresees."""

    def measured(model, *_):
        channels = [model.one.out_channels, model.two.out_channels]
        return sum(channels) / 1000 + (1000 if channels[0] % 2 and channels != [8, 12] else 0)

    def estimated(*_, **__):
        class Estimate:
            full_ms = 0.02

            def predict(self, widths):
                return widths.sum(axis=1) / 1000

        return Estimate()

    monkeypatch.setattr(cafenet.searching.width_search, "measure_latency", measured)
    monkeypatch.setattr(cafenet.searching.width_search, "fit_latency", estimated)
    supernet = tiny()
    for budget in ("0.013ms", "65% latency", "0.013 ms+80%"):
        (result,) = search(supernet, budget, config=SearchConfig(min_usage=0.0))
        assert result.widths["one"] % 2 == 0
        assert result.costs["latency_ms"] == sum(result.widths.values()) / 1000 <= 0.013
        assert result.costs["flops"] <= 0.8 * supernet.space.flops() or "80" not in budget
    monkeypatch.setattr(cafenet.searching.width_search, "measure_latency", lambda *args: 5.0)
    message = r"keep the budget '0.013ms' when it is measured, but none .* takes 5 ms, where 0.013 ms are allowed"
    with pytest.raises(BudgetError, match=message):
        search(supernet, "0.013ms")


@pytest.mark.parametrize("algorithm", [SHORT, Trend(samples=25)], ids=lambda each: each.name)
def test_a_latency_is_met_where_it_was_estimated_too_low(algorithm, monkeypatch):
    """By 10% when the estimate was fitted, as on a machine that has got busy since."""
    real = {"one": 3, "two": 2}

    def measured(model, *_):
        return real["one"] * model.one.out_channels + real["two"] * model.two.out_channels

    monkeypatch.setattr(latency_model, "measure_latency", lambda *args: measured(*args) / 1.1)
    monkeypatch.setattr(cafenet.searching.width_search, "measure_latency", measured)
    (result,) = search(tiny(beta=0.5), "36ms", algorithm=algorithm)  # of 48
    assert result.costs["latency_ms"] == sum(real[name] * width for name, width in result.widths.items())
    assert 0.9 * 36 <= result.costs["latency_ms"] <= 36
    assert result.usage == result.costs["latency_ms"] / 36


@pytest.mark.parametrize("speed", [0.4, 3.0])
def test_a_share_of_the_latency_is_that_of_the_full_model_whenever_it_is_measured(speed, monkeypatch):
    """The machine gets slower or faster once the full model was measured for the budget."""
    slowness, passes = [1.0], []

    @contextmanager
    def ready(model, *_):
        yield lambda: model.one.out_channels + model.two.out_channels

    def timed(run_once):
        passes.append(run_once)
        return slowness[0] * run_once()

    parse = cafenet.searching.width_search.parse_budgets

    def parsed(*arguments, **options):
        budgets = parse(*arguments, **options)
        slowness[0] = speed
        return budgets

    monkeypatch.setattr("cafenet.searching.latency.measure._ready", ready)
    monkeypatch.setattr("cafenet.searching.latency.measure._alone_ms", timed)
    monkeypatch.setattr(cafenet.searching.width_search, "parse_budgets", parsed)
    supernet = tiny(beta=0.5)
    (result,) = search(supernet, "70% latency", algorithm=Trend(samples=25))
    full = sum(supernet.space.full_widths.values())
    assert 0.6 * full <= sum(result.widths.values()) <= 0.7 * full
    assert result.costs["latency_ms"] == pytest.approx(sum(result.widths.values()))
    assert passes


def test_scores_are_those_of_the_prepared_subnet():
    """The channels of the result are those of the candidate that scored best."""
    supernet = tiny(LocallyFree(2))
    (result,) = search(supernet)
    scorer = Scorer(supernet, TRAIN, VALIDATION, config=SCORING)
    prepared = PreparedSubnet(supernet, supernet.space.subnet(channels=result.channels))
    prepared.recalibrate(TRAIN.tensors[0].split(32))
    supernet.model.eval()
    inputs, labels = scorer.validation.batch
    assert float((prepared.run(inputs).argmax(1) == labels).double().mean()) == pytest.approx(result.score, abs=0.005)
