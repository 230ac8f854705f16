"""Wrong arguments of public functions end in one line of the fitting error, not in a traceback from inside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet import errors
from cafenet.common.statistics import compare_paired
from cafenet.data import load_data
from cafenet.runs.recipe import ModelConfig
from cafenet.scoring.metrics import expect_function, is_per_example
from cafenet.searching.latency.measure import measure_latency
from cafenet.space.bins import flops_sensitive_bins, uniform_bins
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.training.losses import named_loss

IMAGE = torch.zeros(1, 1, 6, 6)
WRONG_CHANNELS = torch.zeros(1, 4, 6, 6)


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


def data() -> TensorDataset:
    return TensorDataset(torch.rand(8, 1, 6, 6), torch.arange(8) % 2)


def space() -> cafenet.WidthSpace:
    return cafenet.trace(net(), IMAGE)


def supernet(**options: Any) -> cafenet.Supernet:
    traced = space()
    return cafenet.Supernet(traced.model, traced, **options)


def score(metric: Any) -> bool:
    return is_per_example(metric, torch.zeros(2, 2), torch.zeros(2), 2)


def no_metric(output: Any, target: Any) -> Any:
    return None


def good(output: Any, target: Any) -> Any:
    return "good"


Call = Callable[[Any], Any]
SPACE = "space must be a WidthSpace made by cafenet.trace, but is "
CASES: list[tuple[str, Call, list[Any], type[errors.CafeNetError], str]] = [
    ("trace", lambda v: cafenet.trace(net(), v), [torch.zeros(0, 1, 6, 6)], errors.TraceError, "use a batch of one"),
    ("verify", lambda v: cafenet.verify(v, IMAGE), [None, net()], errors.TraceError, SPACE),
    (
        "trials",
        lambda v: cafenet.verify(space(), IMAGE, trials=v),
        [0, -1, "3", None],
        errors.TraceError,
        "trials must be a whole number of at least 1, but is ",
    ),
    ("widths", lambda v: space().extract(v), [{"0": True}], errors.WidthError, "widths must be whole numbers"),
    ("channels", lambda v: space().extract(channels=v), [3, "0"], errors.WidthError, "channels must be a dict"),
    ("run", lambda v: space().run(v, {"0": 2}), [WRONG_CHANNELS], errors.WidthError, "must run on the inputs, but "),
    ("beta", lambda v: flops_sensitive_bins(space(), v), ["1", None], errors.BinError, "beta must be a number above 0"),
    ("bins", flops_sensitive_bins, [None, net()], errors.BinError, SPACE),
    (
        "divisor",
        lambda v: flops_sensitive_bins(space(), divisor=v),
        [1.5, "8", None],
        errors.BinError,
        "divisor must be a whole number of at least 1, but is ",
    ),
    (
        "min_width",
        lambda v: uniform_bins(space(), 2, min_width=v),
        ["1", float("nan"), None],
        errors.BinError,
        "min_width must be a whole number of at least 1 or a number above 0 and at most 1, but is ",
    ),
    ("num_groups", lambda v: uniform_bins(space(), v), [2.5, "4", None], errors.BinError, "num_groups must be a whole"),
    ("r", LocallyFree, [0.5, "1", None], errors.BinError, "LocallyFree: r must be a whole number of at least 0"),
    ("averages", Bilateral, ["yes", 3], errors.BinError, "Bilateral: averages must be True or False, but is "),
    ("Supernet", lambda v: supernet(bins=v), [3], errors.BinError, "bins must be a Bins made by flops_sensitive_bins"),
    ("seed", lambda v: supernet(seed=v), ["0", 0.5], errors.BudgetError, "seed must be a whole number"),
    ("sort", lambda v: sort_by_importance(v, net()), [None, net()], errors.WidthError, SPACE),
    ("loss", lambda v: named_loss(v, cafenet.TrainConfig()), [nn.L1Loss], errors.TrainingError, "write it with ()"),
    ("metric", expect_function, [nn.L1Loss], errors.ScoringError, "is the class L1Loss; write it with ()"),
    ("metric values", score, [no_metric, good], errors.ScoringError, "a metric must return one value an example"),
    (
        "train_supernet",
        lambda v: cafenet.train_supernet(v, data()),
        [None, net(), 3],
        errors.TrainingError,
        "supernet must be a Supernet, but is ",
    ),
    ("data", lambda v: cafenet.evaluate(net(), v), [3, None], errors.ScoringError, "data must be a data set"),
    ("pairs", lambda v: cafenet.evaluate(net(), v), [[IMAGE], IMAGE], errors.ScoringError, "must give pairs"),
    ("model", lambda v: cafenet.evaluate(v, data()), [3, None], errors.ScoringError, "model must be a Module, but is "),
    (
        "fit",
        lambda v: cafenet.evaluate(v, data()),
        [nn.Linear(2, 2)],
        errors.ScoringError,
        "must run on the evaluation",
    ),
    (
        "budget",
        lambda v: cafenet.search_widths(supernet(), data(), data(), v),
        [[], None, 50],
        errors.BudgetError,
        "budget must be a text or a list, each a text (at least one), but is ",
    ),
    ("save", lambda v: cafenet.save(space().extract(), v), ["", "."], errors.SlimFileError, "path must name a file"),
    ("null", lambda v: cafenet.save(space().extract(), v), ["a\0b"], errors.SlimFileError, "give another path"),
    ("load", lambda v: cafenet.load(v, net()), ["x" * 5000], errors.SlimFileError, "give another path"),
    ("path", lambda v: cafenet.load(v, net()), [3, None], errors.SlimFileError, "path must be a text or a PathLike"),
    ("load_model", cafenet.load_model, [3, None], errors.ModelNameError, "name must be a text, but is "),
    ("load_data", load_data, [3, None], errors.DataError, "name must be a text, but is "),
    (
        "settings",
        lambda v: measure_latency(net(), IMAGE, v),
        [None, 3, "cpu"],
        errors.BudgetError,
        "settings must be a LatencyConfig, as in LatencyConfig(...), but is ",
    ),
    ("latency", lambda v: measure_latency(v, IMAGE, cafenet.LatencyConfig()), [3], errors.BudgetError, "model must be"),
    ("pairs", lambda v: compare_paired(*v), [(["a"], ["b"]), (3, 4)], errors.CafeNetError, "must be lists of numbers"),
    ("input_size", lambda v: ModelConfig(input_size=v), [(), []], errors.RecipeError, "(at least one) or None, but is"),
]


@pytest.mark.parametrize(
    ("call", "value", "error", "message"),
    [
        pytest.param(call, value, error, message, id=f"{name}-{number}")
        for name, call, values, error, message in CASES
        for number, value in enumerate(values)
    ],
)
def test_a_wrong_argument_is_one_line(call: Call, value: Any, error: type[errors.CafeNetError], message: str) -> None:
    with pytest.raises(error) as caught:
        call(value)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_export_that_cannot_be_opened_names_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def refuse(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if "w" in mode:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(errors.ExportError, match=r"m\.pt2 cannot be written: No such file or directory"):
        cafenet.export(net(), IMAGE, tmp_path / "m.pt2")


def test_errors_of_a_forward_that_are_no_runtime_errors_stay_as_they_are() -> None:
    class Refuses(nn.Module):
        def forward(self, x: Any) -> Any:
            raise LookupError("the user's own")

    with pytest.raises(LookupError, match="the user's own"):
        cafenet.evaluate(Refuses(), data())
