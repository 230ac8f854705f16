"""Configs check themselves when they are made, by the annotations of their fields."""

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from cafenet.common.options import Positive, Range, Rising, check_arguments, check_options, option_problems
from cafenet.common.suggestions import did_you_mean
from cafenet.data.augment import Augmentation
from cafenet.errors import CafeNetError
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.runs.recipe import (
    BaselinesConfig,
    DataConfig,
    FinetuneConfig,
    ModelConfig,
    Recipe,
    Reference,
)
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.searching.search_config import SearchConfig
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

CONFIGS = (
    *(BaselinesConfig, DataConfig, ModelConfig, Recipe, FinetuneConfig, Augmentation, DistillConfig),
    *(OptimizerConfig, ScheduleConfig, ScoringConfig, Evolution, Greedy, LatencyConfig, RandomSearch, Trend),
    *(SamplingConfig, SearchConfig, SearchOptions, StagesConfig, SupernetConfig, TrainConfig),
)


@dataclass(frozen=True)
class Inner:
    size: Positive = 1.0

    def __post_init__(self) -> None:
        check_options(self, CafeNetError)


@dataclass(frozen=True)
class Outer:
    count: Annotated[int, Range(1, 5)] = 1
    kind: Literal["race", "exact"] = "race"
    band: Annotated[tuple[float, float], Rising()] | None = None
    names: tuple[str, ...] = ()
    flag: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    parts: list[Inner] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_options(self, CafeNetError)


@pytest.mark.parametrize(
    "values",
    [
        {"count": np.int64(3), "flag": np.bool_(True), "band": [0, np.float32(0.5)], "names": ["a"]},
        {"inner": Inner(3), "parts": [Inner(), Inner()], "options": {"a": object()}, "kind": "exact"},
    ],
)
def test_values_that_fit(values):
    assert Outer(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "3"}, "Outer: count must be a whole number from 1 to 5, but is '3'"),
        ({"count": 6}, "count must be a whole number from 1 to 5, but is 6"),
        ({"count": True}, "but is True"),
        ({"count": 2.0}, "but is 2.0"),
        ({"count": None}, "but is None"),
        ({"kind": "Exact"}, "kind must be 'race' or 'exact', but is 'Exact'; did you mean exact?"),
        ({"kind": ["race"]}, "kind must be 'race' or 'exact', but is ['race']"),
        ({"band": (0.5, 0.1)}, "band must be [a number, a number] in rising order or None, but is (0.5, 0.1)"),
        ({"band": (0.5,)}, "but is (0.5,)"),
        ({"band": (0.5, math.nan)}, "but is (0.5, nan)"),
        ({"names": "abc"}, "names must be a list, each a text, but is 'abc'"),
        ({"flag": 1}, "flag must be True or False, but is 1"),
        ({"options": [1]}, "options must be a dict of names and values, but is [1]"),
        ({"options": {1: 2}}, "but is {1: 2}"),
        ({"inner": {"size": 3}}, "inner must be an Inner, as in Inner(...), but is {'size': 3}"),
        ({"parts": [3]}, "parts must be a list, each an Inner"),
        ({"count": 0, "flag": 2}, "count must be a whole number from 1 to 5, but is 0; flag must be True or False"),
    ],
)
def test_values_that_do_not_fit(values, message):
    with pytest.raises(CafeNetError) as caught:
        Outer(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, math.inf, -math.inf, math.nan, "1", None, True, 10**400, 1j, [1]])
def test_a_number_above_zero(value):
    with pytest.raises(CafeNetError, match="size must be a number above 0, but is"):
        Inner(value)


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (Range(0), "of at least 0"),
        (Range(0, is_open="low"), "above 0"),
        (Range(high=5), "at most 5"),
        (Range(0, 1, is_open="both"), "above 0 and below 1"),
        (Range(0, 1, is_open="high"), "from 0 to below 1"),
    ],
)
def test_ranges_in_words(law, words):
    assert repr(law) == words


def test_places_of_sections():
    values = {"count": 9, "inner": {"size": -1}, "parts": [{"size": 1}, {"size": 0}]}
    assert option_problems(Outer, values) == [
        "count must be a whole number from 1 to 5, but is 9",
        "inner.size must be a number above 0, but is -1",
        "parts[1].size must be a number above 0, but is 0",
    ]


def test_arguments_of_a_function():
    check_arguments(CafeNetError, inner=(None, Inner | None), other=(Inner(), Inner | None))
    with pytest.raises(CafeNetError, match=r"^inner must be an Inner, as in Inner\(...\) or None, but is 3$"):
        check_arguments(CafeNetError, inner=(3, Inner | None))


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_no_field_of_a_config_takes_anything(kind):
    """Whatever a field is, an object of nobody's class is refused, with the field's name."""
    for each in fields(kind):
        if each.type == "Any":
            continue
        with pytest.raises(CafeNetError, match=rf"{kind.__name__}: {each.name} must be .*, but is <object"):
            kind(**{each.name: object()})


def test_all_parts_of_a_recipe_are_such_configs():
    met, left = set(), [Recipe]
    while left:
        kind = left.pop()
        met.add(kind)
        left += [type(value) for value in (getattr(kind(), each.name) for each in fields(kind)) if is_dataclass(value)]
    assert met - {Reference} <= set(CONFIGS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(batch_size="16"), "batch_size must be a whole number of at least 1, but is '16'"),
        (lambda: TrainConfig(epochs=math.inf), "epochs must be a number above 0, but is inf"),
        (lambda: TrainConfig(optimizer="adamw"), r"optimizer must be an OptimizerConfig, as in OptimizerConfig\(...\)"),
        (lambda: TrainConfig(seed=2**70), "seed must be a whole number from 0 to"),
        (lambda: OptimizerConfig(name="adamw"), r"has no optimiser 'adamw'; did you mean AdamW\?"),
        (lambda: OptimizerConfig(name=None), "name must be a text, but is None"),
        (lambda: SearchConfig(seed=2**70), "seed must be a whole number from 0 to"),
    ],
)
def test_wrong_options_of_a_training(make, message):
    with pytest.raises(CafeNetError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "known", "question"),
    [
        ("adamw", ["Adam", "AdamW", "Adamax"], "did you mean AdamW?"),
        ("conf", ["conv", "mix"], "did you mean conv?"),
        ("zzz", ["conv", "mix"], ""),
        (3, ["conv"], ""),
        ("SGD", ["sgd", "Sgd"], "did you mean sgd, Sgd?"),
    ],
)
def test_near_names(name, known, question):
    assert did_you_mean(name, known) == question
