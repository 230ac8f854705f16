"""Wrong calls of the Python interface: each must raise one of CafeNet's own errors, or show the user's own.

A table of (what is called, the call, wrong values): every value is one case. What a call needs besides the value is
made anew in its process, so that no case sees another's.
"""

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import cafenet
from cafenet import (
    Evolution,
    Greedy,
    LatencyConfig,
    OptimizerConfig,
    RandomSearch,
    SamplingConfig,
    ScheduleConfig,
    ScoringConfig,
    SearchOptions,
    StagesConfig,
    SupernetConfig,
    TrainConfig,
    Trend,
)
from cafenet.common.statistics import compare_paired
from cafenet.data import Augmentation, load_data
from cafenet.searching.latency.measure import measure_latency
from cafenet.space.bins import Bins, flops_sensitive_bins, uniform_bins
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.sharing import LocallyFree
from cafenet.training.distillation import DistillConfig

NAN, INF = math.nan, math.inf
IMAGE = torch.zeros(1, 1, 12, 12)


class UsersMistake(Exception):
    """The error that the user's own code raises."""


def net(num_classes: int = 4) -> nn.Module:
    """Two convolutions of 8 and 12 channels."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, num_classes),
    )


def data(count: int = 64, num_classes: int = 4) -> TensorDataset:
    """Noise with labels."""
    images = torch.rand(count, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    return TensorDataset(images, torch.arange(count) % num_classes)


def space() -> cafenet.WidthSpace:
    """The widths of the network."""
    return cafenet.trace(net(), IMAGE)


def supernet(**options: Any) -> cafenet.Supernet:
    """An untrained supernet."""
    traced = space()
    return cafenet.Supernet(traced.model, traced, flops_sensitive_bins(traced), **options)


def search(model: nn.Module | None = None, train_data: Any = None, val_data: Any = None, **given: Any) -> Any:
    """A search that takes half a second where nothing is wrong; options of the tree by name."""
    given = {
        "train": TrainConfig(epochs=1, batch_size=16),
        "algorithm": Evolution(population=2, iterations=1),
        "scoring": ScoringConfig(calibration_size=16, batch_size=16),
        "num_finalists": 1,
        "stages": StagesConfig(),
        "example_inputs": IMAGE,
        "quiet": True,
    } | given
    names = [field.name for field in fields(SearchOptions)]
    options = SearchOptions(**{name: given.pop(name) for name in names if name in given})
    return cafenet.search(
        net() if model is None else model,
        data() if train_data is None else train_data,
        data() if val_data is None else val_data,
        options=given.pop("options", options),
        **given,
    )


def training(**options: Any) -> Any:
    """A search whose supernet is trained with these options."""
    return search(train=TrainConfig(**{"epochs": 1, "batch_size": 16, **options}))


def optimizer(**options: Any) -> Any:
    return training(optimizer=OptimizerConfig(**options))


def schedule(**options: Any) -> Any:
    return training(schedule=ScheduleConfig(**options))


def verified(inputs: Any) -> None:
    """A verification that finds problems has said what is wrong, too."""
    found = cafenet.verify(space(), inputs)
    if not found.ok:
        raise cafenet.CafeNetError(found.problems[0])


def widths(values: Any) -> Any:
    return space().extract(values)


class Raises(Dataset[Any]):
    """Examples of which some raise the user's own error."""

    def __init__(self, after: int = 0) -> None:
        self.inner, self.after = data(), after

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        if index >= self.after:
            raise UsersMistake(f"no example {index}")
        return self.inner[index]


def raising(*arguments: Any, **options: Any) -> Any:
    """A loss, a metric, a hook or a collate function that raises."""
    raise UsersMistake("not today")


class Net(nn.Module):
    """A network whose forward the case gives."""

    def __init__(self, forward: Callable[["Net", Tensor], Any]) -> None:
        super().__init__()
        self.body, self._forward = net(), forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


def raises_in_training(model: Net, x: Tensor) -> Tensor:
    if model.training and not x.is_meta and x.shape[0] > 1:
        raise UsersMistake("no training today")
    output: Tensor = model.body(x)
    return output


def without_gradients(model: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        output: Tensor = model.body(x)
    return output


def pairs(images: Any, labels: Any) -> list[Any]:
    return list(zip(images, labels, strict=True))


def slim_file(**changes: Any) -> Any:
    """A slim file with other contents, loaded."""
    model = net()
    path = Path("slim.pt")
    cafenet.save(cafenet.trace(model, IMAGE).extract({"0": 4, "3": 6}), path)
    content = torch.load(path, weights_only=True)
    for key, change in changes.items():
        content[key] = change(content[key])
    torch.save(content, path)
    return cafenet.load(path, model)


def pillow_images() -> Any:
    from PIL import Image

    return [(Image.new("L", (12, 12)), number % 4) for number in range(32)]


Table = list[tuple[str, Callable[[Any], Any], list[Any]]]

TRACING: Table = [
    ("trace(model)", lambda v: cafenet.trace(v, IMAGE), [None, 3, "net", [], nn.Conv2d, lambda x: x, {}]),
    (
        "trace(example_inputs)",
        lambda v: cafenet.trace(net(), v),
        [
            None,
            3,
            "image",
            (),
            [],
            {},
            (1, 2),
            {"x": None},
            np.zeros((1, 1, 12, 12)),
            {"image": IMAGE},
            torch.zeros(1, 4, 12, 12),
            torch.zeros(1, 1),
            torch.zeros(0, 1, 12, 12),
            IMAGE.long(),
            (IMAGE, IMAGE),
        ],
    ),
    ("trace(min_width)", lambda v: cafenet.trace(net(), IMAGE, min_width=v), [0, -1, 1.5, NAN, INF, "8", None, True]),
    ("trace(freeze)", lambda v: cafenet.trace(net(), IMAGE, freeze=v), ["absent", ["0", "absent"], [3], 3, [None]]),
    ("trace(rules)", lambda v: cafenet.trace(net(), IMAGE, rules=v), [3, {"relu": 1}, {torch.ops.aten.relu: None}]),
    ("trace of a model on meta that is searched", lambda v: search(net().to("meta")), [0]),
    ("trace of a scripted model", lambda v: cafenet.trace(torch.jit.script(net()), IMAGE), [0]),
    ("trace of a lazy layer", lambda v: cafenet.trace(nn.Sequential(nn.LazyConv2d(8, 1), net()), IMAGE), [0]),
    ("trace of nothing to search", lambda v: cafenet.trace(v, IMAGE), [nn.Conv2d(1, 5, 1), nn.ReLU()]),
    ("trace of a forward that raises", lambda v: cafenet.trace(Net(raising), IMAGE), [0]),
    ("verify(trials)", lambda v: cafenet.verify(space(), IMAGE, trials=v), [0, -1, "3", None]),
    ("verify(inputs)", lambda v: verified(v), [None, torch.zeros(1, 4, 12, 12), "image"]),
    ("verify(space)", lambda v: cafenet.verify(v, IMAGE), [None, net()]),
]
WIDTHS: Table = [
    (
        "extract(widths)",
        widths,
        [
            {"0": 9},
            {"0": 0},
            {"0": -4},
            {"0": 10**12},
            {"0": 4.5},
            {"0": None},
            {"0": "4"},
            {"absent": 4},
            {0: 4},
            [8],
            [8, 12, 4],
            [],
            8,
            "8",
            [8.0, 12.0],
            [True, True],
            [NAN, 8],
            [[8, 12], [8]],
            {"0": True},
        ],
    ),
    ("flops(widths)", lambda v: space().flops(v), [[8], "50%", {"0": 99}, np.zeros((2, 3), dtype=int), [[1.5, 2.0]]]),
    ("params(widths)", lambda v: space().params(v), [[8], "50%", {"0": 99}, np.zeros((2, 3), dtype=int)]),
    (
        "extract(channels)",
        lambda v: space().extract(channels=v),
        [{"0": [8]}, {"0": [-1]}, {"0": [0, 0]}, {"0": []}, {"0": 3}, {"0": [0.5]}, {"absent": [0]}, 3, "0"],
    ),
    ("extract(model)", lambda v: space().extract({"0": 4}, model=v), [3, net(5), nn.Linear(2, 2)]),
    ("extract of widths and channels", lambda v: space().extract({"0": 4}, channels={"0": [0]}), [0]),
    ("run(inputs)", lambda v: space().run(v, {"0": 4}), [None, "image", torch.zeros(1, 4, 12, 12)]),
    ("group(name)", lambda v: space().group(v), ["absent", "", None, 3]),
    ("flops_share(group)", lambda v: space().flops_share(v), ["absent", None]),
    ("flops_sensitive_bins(beta)", lambda v: flops_sensitive_bins(space(), v), [0, -1, NAN, INF, "1", None]),
    ("flops_sensitive_bins(space)", lambda v: flops_sensitive_bins(v), [None, net()]),
    ("bins(divisor)", lambda v: flops_sensitive_bins(space(), divisor=v), [0, -8, 1.5, "8", None]),
    ("bins(min_width)", lambda v: flops_sensitive_bins(space(), min_width=v), [0, -1, 1.5, "1", NAN, None]),
    ("uniform_bins(num_groups)", lambda v: uniform_bins(space(), v), [0, -1, 2.5, "4", None]),
    ("LocallyFree(r)", lambda v: supernet(sharing=LocallyFree(v)), [-1, 0.5, "1", None]),
    ("Supernet(bins)", lambda v: cafenet.Supernet(net(), space(), v), [3, Bins(())]),
    ("Supernet(seed)", lambda v: supernet(seed=v), ["0", 0.5]),
    ("SupernetConfig(r)", lambda v: search(supernet=SupernetConfig(r=v)), [-1, 0.5, "1", None]),
    ("SupernetConfig(beta)", lambda v: search(supernet=SupernetConfig(beta=v)), [0, -1, NAN, INF, "1"]),
    ("SupernetConfig(num_bins)", lambda v: search(supernet=SupernetConfig(bins="uniform", num_bins=v)), [0, -1, "9"]),
    ("SupernetConfig(words)", lambda v: search(supernet=SupernetConfig(**v)), [{"sharing": "free"}, {"bins": "even"}]),
    ("SupernetConfig(choice)", lambda v: search(supernet=SupernetConfig(choice=v)), ["best", None, 3]),
    ("sort_by_importance(space)", lambda v: sort_by_importance(v, net()), [None, net()]),
]
SEARCHING: Table = [
    (
        "search(budget)",
        lambda v: search(budget=v),
        [
            "",
            "many",
            "0%",
            "-5%",
            "101%",
            "100%",
            "1%",
            "nan%",
            "inf",
            "50",
            "50%%",
            None,
            50,
            0.5,
            "50% wings",
            "0.001ms",
            "50%+",
            "+",
            ",",
            "50%+50%",
            [],
            [50],
            "1e400M",
        ],
    ),
    ("search(loss)", lambda v: search(loss=v), ["cross", "", None, 3, nn.CrossEntropyLoss]),
    ("search(metric)", lambda v: search(metric=v), ["acc", "", None, 3, lambda o, t: None, lambda o, t: "good"]),
    ("search(start)", lambda v: search(start=v), ["fresh", None, 3]),
    ("search(train)", lambda v: search(train=v), [{"epochs": 1}, 3, "long", TrainConfig]),
    ("search(finetune)", lambda v: search(finetune=v), [3, {"epochs": 1}, "yes", 1, TrainConfig]),
    ("search(algorithm)", lambda v: search(algorithm=v), ["trend", 3, Trend]),
    ("search(stages)", lambda v: search(stages=v), [2, "two", {"num_stages": 2}]),
    ("search(options)", lambda v: search(options=v), [2, "good", {"seed": 1}]),
    ("search(scoring)", lambda v: search(scoring=v), [2, "good", {"race": True}]),
    ("search(supernet)", lambda v: search(supernet=v), [2, "locally_free", {"r": 1}]),
    ("search(latency)", lambda v: search(budget="5ms", latency=v), [2, "cpu", {"repeats": 2}]),
    ("search(freeze)", lambda v: search(freeze=v), [("absent",), 3, (3,), ("*",)]),
    (
        "search(directory)",
        lambda v: search(directory=v),
        ["", "/proc/1", "/dev/null", "a\0b", "x" * 5000, 3, b"bytes", "/proc/cafenet", "/dev/null/run"],
    ),
    ("search(model)", lambda v: search(v), [3, "net", nn.Linear(2, 2), net().to("meta"), torch.jit.script(net())]),
    ("search(train_data)", lambda v: search(train_data=v), [3, [], "data", {}, IMAGE, [1, 2], [IMAGE], iter([])]),
    ("search(val_data)", lambda v: search(val_data=v), [3, [], "data", {}, IMAGE, [1, 2], [IMAGE], iter([])]),
    ("search(train labels)", lambda v: search(train_data=data(64, v)), [5, 9]),
    ("search(val labels)", lambda v: search(val_data=data(64, v)), [5, 9]),
    (
        "search(train targets)",
        lambda v: search(train_data=TensorDataset(data().tensors[0], v)),
        [torch.zeros(64), -torch.ones(64).long(), torch.full((64,), 300), torch.zeros(64, 3), torch.zeros(64, 2, 2)],
    ),
    (
        "search(images)",
        lambda v: search(train_data=TensorDataset(v, torch.arange(len(v)) % 4)),
        [
            torch.zeros(64, 3, 12, 12),
            torch.zeros(64, 1, 12, 12).long(),
            torch.zeros(64),
            torch.full((64, 1, 12, 12), NAN),
        ],
    ),
    ("search(too few examples)", lambda v: search(train_data=data(v)), [0, 1, 8]),
    ("search(varying shapes)", lambda v: search(train_data=pairs([IMAGE[0], IMAGE[0, :, :8]] * 32, [0, 1] * 32)), [0]),
    ("search(Pillow images)", lambda v: search(train_data=pillow_images()), [0]),
    ("search(images without labels)", lambda v: search(train_data=TensorDataset(data().tensors[0])), [0]),
    ("search(three parts)", lambda v: search(train_data=TensorDataset(*data().tensors, data().tensors[1])), [0]),
    ("search(forward without gradients)", lambda v: search(Net(without_gradients)), [0]),
    ("search(model returns)", lambda v: search(Net(v)), [lambda m, x: {"a": m.body(x)}, lambda m, x: (m.body(x),) * 2]),
    ("search(model returns numbers)", lambda v: search(Net(v)), [lambda m, x: m.body(x).mean(), lambda m, x: None]),
    (
        "Evolution",
        lambda v: search(algorithm=Evolution(**v)),
        [{"population": 0}, {"iterations": -1}, {"num_parents": 0}],
    ),
    ("Evolution(types)", lambda v: search(algorithm=Evolution(**v)), [{"population": "4"}, {"mutation_rate": 2}]),
    ("RandomSearch(samples)", lambda v: search(algorithm=RandomSearch(v)), [0, -1, 2.5, "10", None]),
    ("Trend(samples)", lambda v: search(algorithm=Trend(v)), [0, -1, 2.5, "10", None]),
    ("Trend(spread)", lambda v: search(algorithm=Trend(4, spread=v)), [0, -1, NAN, "0.3", INF]),
    ("Greedy(step)", lambda v: search(algorithm=Greedy(v)), [0, 1, -1, NAN, "0.1", None]),
    (
        "StagesConfig",
        lambda v: search(stages=StagesConfig(**v)),
        [{"num_stages": 0}, {"alpha": 0}, {"num_stages": "2"}],
    ),
    ("StagesConfig(numbers)", lambda v: search(stages=StagesConfig(**v)), [{"num_stages": 1.5}, {"alpha": NAN}]),
    ("search(seed)", lambda v: search(seed=v), [-1, 2**70, "0", 0.5, None]),
    ("SearchOptions(search_workers)", lambda v: search(search_workers=v), [0, -1, "2", 1.5]),
    ("SearchOptions(band)", lambda v: search(band=v), [(1, 0.5), (0, 2), 3, "all", (NAN, 1)]),
    ("SearchOptions(min_usage)", lambda v: search(min_usage=v), [-1, 2, NAN, "1"]),
    ("SearchOptions(num_finalists)", lambda v: search(num_finalists=v), [0, -1, "2", 1.5]),
    ("ScoringConfig", lambda v: search(scoring=ScoringConfig(**v)), [{"first_share": 0}, {"first_share": "1"}]),
    ("ScoringConfig(sizes)", lambda v: search(scoring=ScoringConfig(calibration_size=v)), [0, -1, "64", 1.5]),
    ("ScoringConfig(batch_size)", lambda v: search(scoring=ScoringConfig(batch_size=v)), [0, 1, -1, "16", 2.5]),
    ("ScoringConfig(max_examples)", lambda v: search(scoring=ScoringConfig(max_examples=v)), [0, -1, "16"]),
    ("LatencyConfig", lambda v: LatencyConfig(**v), [{"repeats": 0}, {"device": "nowhere"}, {"device": "meta"}]),
    (
        "LatencyConfig(types)",
        lambda v: LatencyConfig(**v),
        [{"repeats": "3"}, {"batch_size": 0.5}, {"device": 3.5}],
    ),
    (
        "DistillConfig",
        lambda v: DistillConfig(**v),
        [{"weight": 0}, {"weight": 2}, {"temperature": 0}, {"weight": "1"}],
    ),
]
TRAINING: Table = [
    ("TrainConfig(epochs)", lambda v: training(epochs=v), [0, -1, NAN, INF, "3", None]),
    ("TrainConfig(batch_size)", lambda v: training(batch_size=v), [0, -1, "16", 1.5, None, 10**6]),
    ("TrainConfig(accumulate)", lambda v: training(accumulate=v), [0, -1, "2", 1.5]),
    ("TrainConfig(optimizer)", lambda v: training(optimizer=v), ["adamw", 3, {"lr": 0.1}, torch.optim.SGD]),
    ("TrainConfig(schedule)", lambda v: training(schedule=v), ["cosine", 3, {"name": "cosine"}]),
    ("TrainConfig(label_smoothing)", lambda v: training(label_smoothing=v), [-0.1, 1, 2, NAN, "0.1"]),
    ("SamplingConfig(random_share)", lambda v: search(sampling=SamplingConfig(random_share=v)), [-0.1, 2, NAN, "0.1"]),
    ("SamplingConfig(sandwich)", lambda v: search(sampling=SamplingConfig(sandwich=v)), [-1, "2", 0.5]),
    (
        "SamplingConfig(flops_band)",
        lambda v: search(sampling=SamplingConfig(flops_band=v)),
        [(0, 1), (1, 0.5), "all", 3, (0.5,), (NAN, 1)],
    ),
    ("SamplingConfig(spread)", lambda v: search(sampling=SamplingConfig(spread=v)), [0, -1, NAN, "0.3", INF]),
    ("SamplingConfig(full_share)", lambda v: search(sampling=SamplingConfig(full_share=v)), [-0.1, 1, 2, NAN, "0.3"]),
    ("SamplingConfig(distill)", lambda v: search(sampling=SamplingConfig(distill=v)), [3, "yes", {"weight": 0.5}]),
    ("TrainConfig(clip_norm)", lambda v: training(clip_norm=v), [0, -1, NAN, "1"]),
    ("TrainConfig(amp)", lambda v: training(amp=v), ["fp8", "fp16", True, 16]),
    ("TrainConfig(num_workers)", lambda v: training(num_workers=v), [-1, "2", 0.5]),
    ("TrainConfig(seed)", lambda v: training(seed=v), [-1, 2**70, "0", 0.5, None]),
    ("TrainConfig(checkpoint_every)", lambda v: training(checkpoint_every=v), [0, -1, "2", None]),
    ("TrainConfig(log_every)", lambda v: training(log_every=v), [0, -1, "2", None]),
    ("OptimizerConfig(name)", lambda v: optimizer(name=v), ["adamw", "SDG", "", None, 3, "LBFGS", "SparseAdam"]),
    ("OptimizerConfig(lr)", lambda v: optimizer(lr=v), [-1, NAN, INF, "0.1", None]),
    ("OptimizerConfig(weight_decay)", lambda v: optimizer(weight_decay=v), [-1, NAN, "0.1", None]),
    ("OptimizerConfig(options)", lambda v: optimizer(options=v), [{"speed": 1}, {"momentum": -1}, 3, None, "nesterov"]),
    ("ScheduleConfig(name)", lambda v: schedule(name=v), ["cosin", "", None, 3]),
    ("ScheduleConfig(warmup_epochs)", lambda v: schedule(warmup_epochs=v), [-1, NAN, "1", INF]),
    ("ScheduleConfig(gamma)", lambda v: schedule(name="step", gamma=v), [0, -1, NAN, "0.1"]),
    ("ScheduleConfig(milestones)", lambda v: schedule(name="step", milestones=v), [3, "half", (-1,), ("0.5",), (NAN,)]),
    ("ScheduleConfig(final_lr)", lambda v: schedule(final_lr=v), [-1, NAN, "0"]),
    (
        "train_model(data)",
        lambda v: cafenet.train_model(net(), IMAGE, v, TrainConfig(epochs=1)),
        [3, [], None, data(0)],
    ),
    ("train_model(config)", lambda v: cafenet.train_model(net(), IMAGE, data(), v), [3, None, "short", {"epochs": 1}]),
    ("train_supernet(supernet)", lambda v: cafenet.train_supernet(v, data(), TrainConfig()), [None, net(), 3]),
    ("evaluate(data)", lambda v: cafenet.evaluate(net(), v), [3, [], None, data(0), [IMAGE], data(64).tensors[0]]),
    ("evaluate(model)", lambda v: cafenet.evaluate(v, data()), [3, None, nn.Linear(2, 2)]),
    ("search_widths(budget)", lambda v: cafenet.search_widths(supernet(), data(), data(), v), ["", [], None, "1%", 50]),
    (
        "search_widths(storage)",
        lambda v: cafenet.search_widths(supernet(), data(), data(), storage=v),
        ["x://y", "/proc/x"],
    ),
]
FILES: Table = [
    ("save(model)", lambda v: cafenet.save(v, "slim.pt"), [net(), 3, None]),
    ("save(path)", lambda v: cafenet.save(space().extract(), v), ["absent/slim.pt", "", "/proc/slim.pt", ".", "a\0b"]),
    ("load(path)", lambda v: cafenet.load(v, net()), ["absent.pt", "", ".", "/dev/null", "a\0b", "x" * 5000]),
    ("load(model)", lambda v: (cafenet.save(space().extract(), "a.pt"), cafenet.load("a.pt", v)), [3, None, net(5)]),
    ("slim file: widths", lambda v: slim_file(widths=v), [lambda w: w | {"0": 3}, lambda w: {}, lambda w: 3]),
    ("slim file: channels", lambda v: slim_file(channels=v), [lambda c: c | {"0": [99999] * 4}, lambda c: None]),
    (
        "slim file: tensors",
        lambda v: slim_file(tensors=v),
        [
            lambda t: t | {"0.weight": torch.zeros(3, 1, 3, 3)},
            lambda t: {},
            lambda t: 3,
            lambda t: t | {"0.weight": torch.zeros(4, 1, 3, 3).long()},
            lambda t: t | {"0.weight": 3},
        ],
    ),
    (
        "slim file: attributes",
        lambda v: slim_file(attributes=v),
        [
            lambda a: [*a, ["0", "forward", 3]],
            lambda a: [*a, ["", "__class__", 3]],
            lambda a: [["absent", "x", 3]],
            lambda a: 3,
            lambda a: [["0"]],
            lambda a: [["0", "out_channels", -3]],
        ],
    ),
    ("slim file: format", lambda v: slim_file(format_version=v), [lambda f: 99, lambda f: "1", lambda f: None]),
    (
        "slim file: full_shapes",
        lambda v: slim_file(full_shapes=v),
        [lambda s: {}, lambda s: 3, lambda s: {"0.weight": 3}],
    ),
    (
        "load_model(name)",
        lambda v: cafenet.load_model(v),
        ["", "resnet18", "torchvision:absent", "timm:absent", 3, ":"],
    ),
    ("load_model(file)", lambda v: cafenet.load_model(v), ["absent.py:build", "cafenet:absent", "os:getcwd", "a\0b:c"]),
    (
        "load_model(options)",
        lambda v: cafenet.load_model("torchvision:resnet18", **v),
        [{"speed": 1}, {"num_classes": -1}],
    ),
    ("export_model(kind)", lambda v: cafenet.export(net(), IMAGE, f"model.{v}"), ["exe", "", "pt"]),
    (
        "export_model(path)",
        lambda v: cafenet.export(net(), IMAGE, v),
        ["absent/m.pt2", "/proc/m.pt2", ".pt2/a.onnx"],
    ),
    ("measure_latency(settings)", lambda v: measure_latency(net(), IMAGE, v), [None, 3, "cpu"]),
    ("measure_latency(model)", lambda v: measure_latency(v, IMAGE, LatencyConfig()), [net().to("meta"), 3]),
    ("compare_paired", lambda v: compare_paired(*v), [([], []), ([1.0], [1.0, 2.0]), (["a"], ["b"]), (3, 4)]),
    ("load_data(name)", lambda v: load_data(v), ["", "absent", "npz:", "npz:absent", "folder:absent", 3, "npz:a\0b"]),
    (
        "Augmentation",
        lambda v: Augmentation(**v),
        [{"padding": -1}, {"erasing": 2}, {"padding": "2"}, {"erasing": NAN}],
    ),
]
USERS_CODE: Table = [
    ("the user's training data raise", lambda v: search(train_data=Raises(v)), [0, 20, 60]),
    ("the user's validation data raise", lambda v: search(val_data=Raises(v)), [0, 20, 60]),
    (
        "the user's data raise in a worker",
        lambda v: search(train_data=Raises(v), train=TrainConfig(num_workers=1)),
        [20],
    ),
    ("the user's loss raises", lambda v: search(loss=raising), [0]),
    ("the user's metric raises", lambda v: search(metric=raising), [0]),
    ("the user's forward raises in training", lambda v: search(Net(raises_in_training)), [0]),
    ("the user's collate raises", lambda v: search(train_data=DataLoader(data(), 16, collate_fn=raising)), [0]),
    ("the user's evaluation data raise", lambda v: cafenet.evaluate(net(), Raises(v)), [0, 20]),
    (
        "the user's model raises in latency",
        lambda v: measure_latency(Net(raising), IMAGE, LatencyConfig()),
        [0],
    ),
]
CALLS: dict[str, Table] = {
    "trace, verify": TRACING,
    "widths, bins, supernets": WIDTHS,
    "search and its options": SEARCHING,
    "training options": TRAINING,
    "files, models, data": FILES,
    "the user's own code raises": USERS_CODE,
}
