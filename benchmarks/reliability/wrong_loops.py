"""Wrong calls of what stands around a search: own training loops, loggers, runtimes, exports and distillation."""

from typing import Any

import torch
from torch import nn

import cafenet
from benchmarks.reliability.wrong_calls import IMAGE, INF, NAN, Table, data, net, raising, search
from cafenet import Evolution, LatencyConfig, ScoringConfig, SearchOptions, TrainConfig
from cafenet.searching.latency.measure import measure_latency
from cafenet.training.distillation import DistillConfig

QUICK = SearchOptions(algorithm=Evolution(population=2, iterations=1), scoring=ScoringConfig(calibration_size=16))
ONE = (torch.rand(8, 1, 12, 12), torch.arange(8) % 4)


def own(**options: Any) -> cafenet.Supernet:
    """A supernet for a training loop of one's own."""
    return cafenet.Supernet(options.pop("model", net()), options.pop("inputs", IMAGE), **options)


def step(batch: Any = ONE, loss: Any = "cross_entropy", **options: Any) -> Any:
    """One step of such a loop."""
    return own(budget="50%").step(batch, loss, **options)


def found(train_data: Any = None, val_data: Any = None, budget: Any = "50%", **options: Any) -> Any:
    """The search after such a loop."""
    train_data, val_data = (data() if each is None else each for each in (train_data, val_data))
    return own().search(train_data, val_data, budget, **{"options": QUICK, "quiet": True, **options})


def loaded_state(change: Any) -> Any:
    """A supernet's state dict with other contents, loaded."""
    supernet = own()
    state = supernet.state_dict()
    key = next(key for key in state if key.endswith("_extra_state"))
    state[key] = change(state[key])
    return supernet.load_state_dict(state)


def calibrated(calibration: Any, **options: Any) -> Any:
    return cafenet.export(net(), IMAGE, "model.onnx", quantize="int8", calibration=calibration, **options)


OWN_LOOPS: Table = [
    ("own loop: Supernet(model)", lambda v: own(model=v), [None, 3, "net", nn.Linear]),
    (
        "own loop: Supernet(example_inputs)",
        lambda v: own(inputs=v),
        [None, 3, "image", torch.zeros(1, 4, 12, 12), {"image": IMAGE}],
    ),
    (
        "own loop: Supernet(budget)",
        lambda v: own(budget=v),
        ["", 50, "0%", [], ["50%", 3], "101%", "50% wings", {"50%"}],
    ),
    ("own loop: Supernet(seed)", lambda v: own(seed=v), [-1, 1.5, "0", None, 2**70]),
    ("own loop: Supernet(sort_by_importance)", lambda v: own(sort_by_importance=v), [1, "yes", None]),
    ("own loop: Supernet(bins)", lambda v: own(bins=v), [3, "uniform", [2, 2]]),
    ("own loop: Supernet(sharing)", lambda v: own(sharing=v), [3, "free", {"r": 1}]),
    ("own loop: Supernet(choice)", lambda v: own(choice=v), [3, "race"]),
    (
        "Supernet.step(batch)",
        lambda v: step(v),
        [
            None,
            3,
            (),
            (ONE[0],),
            (*ONE, 1),
            ONE[0],
            {},
            {"x": 1},
            "ab",
            (ONE[0][:0], ONE[1][:0]),
            (ONE[0], ONE[1] + 90),
        ],
    ),
    (
        "Supernet.step(loss)",
        lambda v: step(loss=v),
        [None, 3, "cross", "", lambda o, t: 3, lambda o, t: o, lambda o, t: None],
    ),
    (
        "Supernet.step(bin_counts)",
        lambda v: step(bin_counts=v),
        [3, "half", [1], [0, 0], [99, 99], [1.5, 2], [1, 2, 3], [-1, 1]],
    ),
    ("Supernet.search(budget)", lambda v: found(budget=v), ["", 50, [], "1%", "50% wings", "0.0001ms", None]),
    ("Supernet.search(train_data)", lambda v: found(train_data=v), [3, "data", [], {}, IMAGE, iter([])]),
    ("Supernet.search(val_data)", lambda v: found(val_data=v), [3, "data", [], {}, IMAGE, data(64, 9)]),
    ("Supernet.search(loss)", lambda v: found(loss=v), ["cross", 3, None]),
    ("Supernet.search(metric)", lambda v: found(metric=v), ["acc", 3, None, lambda o, t: "good"]),
    ("Supernet.search(options)", lambda v: found(options=v), [3, "paper", {"seed": 1}]),
    ("Supernet.search(finetune)", lambda v: found(finetune=v), [True, 3, {"epochs": 1}]),
    ("Supernet.search(trained)", lambda v: found(trained=v), [1, "yes"]),
    ("Supernet.search(test_data)", lambda v: found(test_data=v), [3, [], data(64, 9)]),
    ("Supernet.search(directory)", lambda v: found(directory=v), ["", "/proc/1", "/dev/null", 3]),
    (
        "Supernet.load_state_dict",
        lambda v: loaded_state(v),
        [lambda s: None, lambda s: 3, lambda s: {}, lambda s: torch.zeros(3)],
    ),
]
AROUND: Table = [
    (
        "search(loggers)",
        lambda v: search(loggers=v),
        [
            ["jsonl"],
            ["jsonl:"],
            ["jsonl:/proc/x"],
            ["board:runs"],
            [3],
            3,
            "jsonl:x",
            [None],
            ["jsonl:absent/x.jsonl\0"],
        ],
    ),
    ("search(distill)", lambda v: search(trained=True, distill=v), [3, "yes", None, {"weight": 0.5}, DistillConfig]),
    ("DistillConfig(weight)", lambda v: DistillConfig(weight=v), [-1, 2, NAN, INF, "half", None]),
    ("DistillConfig(temperature)", lambda v: DistillConfig(temperature=v), [0, -1, NAN, INF, "hot", None]),
    ("search(effort)", lambda v: search(effort=v), ["much", "", 3, None]),
    ("search(trained)", lambda v: search(trained=v), [1, "yes"]),
    ("search(baseline)", lambda v: search(baseline=v), [1, "yes"]),
    ("search(test_data)", lambda v: search(test_data=v), [3, [], "data", data(64, 9)]),
    ("search(outputs)", lambda v: search(outputs=v), ["absent", 7, -9, ["absent"], 1.5]),
    ("search(epochs)", lambda v: search(train=None, epochs=v), [0, -1, NAN, INF, "10", [3]]),
    ("search(finetune_epochs)", lambda v: search(finetune_epochs=v), [-1, NAN, INF, "10", [3]]),
    ("search(epochs and train)", lambda v: search(epochs=1, train=TrainConfig(epochs=v)), [2]),
    (
        "LatencyConfig(runtime)",
        lambda v: search(budget="5ms", latency=LatencyConfig(runtime=v)),
        [
            3,
            "",
            "absent",
            "torch.jit",
            "command:",
            "command:onnx",
            "command:exe true {file}",
            "command:onnx true",
            None,
        ],
    ),
    (
        "a device's command",
        lambda v: measure_latency(net(), IMAGE, LatencyConfig(runtime=f"command:pt2 {v} {{file}}", retries=0)),
        ["false", "echo", "absent-program", "cat", "echo -5", "echo nan"],
    ),
    (
        "a device's function",
        lambda v: measure_latency(net(), IMAGE, LatencyConfig(runtime=v, retries=0)),
        [lambda path: None, lambda path: "fast", lambda path: -1.0, lambda path: NAN, lambda: 3.0],
    ),
    (
        "LatencyConfig(cache)",
        lambda v: search(budget="50ms", latency=LatencyConfig(cache=v)),
        [3, "/proc/x", "a\0b", ""],
    ),
    ("LatencyConfig(timeout_seconds)", lambda v: LatencyConfig(timeout_seconds=v), [0, -1, NAN, "1"]),
    (
        "export(quantize)",
        lambda v: cafenet.export(net(), IMAGE, "m.onnx", quantize=v, calibration=data()),
        ["int4", 8, "", True],
    ),
    ("export(calibration)", lambda v: calibrated(v), [None, 3, [], "data", [1, 2], iter([])]),
    ("export(example_inputs)", lambda v: cafenet.export(net(), v, "m.pt2"), [None, 3, (), torch.zeros(1, 4, 12, 12)]),
    ("export(model)", lambda v: cafenet.export(v, IMAGE, "m.pt2"), [None, 3, "net", nn.Linear]),
    ("export(fixed_batch)", lambda v: cafenet.export(net(), IMAGE, "m.onnx", fixed_batch=v), [1, "yes", None]),
    ("free_heads", lambda v: cafenet.free_heads(v), [None, 3, "net"]),
]
OWN_MISTAKES: Table = [
    ("the user's loss raises in a step", lambda v: step(loss=raising), [0]),
    ("the user's metric raises after a loop", lambda v: found(metric=raising), [0]),
    (
        "a device's function of the user raises",
        lambda v: measure_latency(net(), IMAGE, LatencyConfig(runtime=raising)),
        [0],
    ),
]
LOOPS: dict[str, Table] = {
    "own training loops": OWN_LOOPS,
    "loggers, runtimes, exports": AROUND,
    "the user's own code raises": OWN_MISTAKES,
}
