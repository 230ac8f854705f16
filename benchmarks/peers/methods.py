"""Every method: a trained network and a share of FLOPs in, slim networks out, used as its documentation says.

The body of each function is the code that a user needs for it; its lines are counted for the table.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from benchmarks.peers.tasks import BATCH_SIZE, Task, trained_for
from torch import nn

import cafenet
from cafenet.evaluate import evaluate
from cafenet.searching.algorithm import Algorithm
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible

SUPERNET_EPOCHS = 20
NUM_SEARCHED = 300
RANDOM_WIDTHS, RANDOM_EPOCHS = 5, 4

Method: TypeAlias = Callable[[Task, nn.Module, int, int, Path], nn.Module]
"""method(task, trained network, percent, seed, directory) -> slim network with the weights that the tool gives it."""


def uniform(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """One factor for all groups, the leading channels."""
    space = cafenet.trace(trained, task.example)
    widths = _feasible(space, percent).uniform()
    return space.extract(_bins(space).widths(widths), model=trained)


def random(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Some widths trained for a while; the best on the validation set."""
    space = cafenet.trace(trained, task.example)
    bins = _bins(space)
    rows = _feasible(space, percent).sample(RANDOM_WIDTHS, np.random.default_rng(seed))
    scores = []
    for number, row in enumerate(rows):
        slim = cafenet.retrain.initialised(space.extract(bins.widths(row), model=trained), seed)
        config = trained_for(RANDOM_EPOCHS, seed)
        slim = cafenet.train_model(
            slim, task.example, task.batches(), config, directory=place / f"random-{percent}-{number}", quiet=True
        )
        scores.append(evaluate(slim, task.validation_batches())["accuracy"])
    return space.extract(bins.widths(rows[int(np.argmax(scores))]), model=trained)


def autoslim(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """The fixed pattern over all widths, searched greedily, as AutoSlim does."""
    supernet = cafenet.SupernetConfig(r=0, beta=0.5)
    training = replace(trained_for(SUPERNET_EPOCHS, seed), flops_band=None)
    return _searched(task, percent, seed, place / "fixed", supernet, training, cafenet.Greedy())


def cafenet_e(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Ours, evolutionary."""
    supernet, training = cafenet.SupernetConfig(beta=0.5), trained_for(SUPERNET_EPOCHS, seed)
    algorithm = cafenet.Evolution(population=30, iterations=NUM_SEARCHED // 30)
    return _searched(task, percent, seed, place / f"{percent}", supernet, training, algorithm)


def cafenet_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Ours, by trend."""
    supernet, training = cafenet.SupernetConfig(beta=0.5), trained_for(SUPERNET_EPOCHS, seed)
    algorithm = cafenet.Trend(NUM_SEARCHED)
    return _searched(task, percent, seed, place / f"{percent}", supernet, training, algorithm)


def cafenet_r(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Ours, random."""
    supernet, training = cafenet.SupernetConfig(beta=0.5), trained_for(SUPERNET_EPOCHS, seed)
    algorithm = cafenet.RandomSearch(NUM_SEARCHED)
    return _searched(task, percent, seed, place / f"{percent}", supernet, training, algorithm)


def torch_pruning(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Group norms, global, in steps until the FLOPs are met."""
    import torch_pruning as tp

    model = copy.deepcopy(trained).eval()
    full, _ = tp.utils.count_ops_and_params(model, task.example)
    pruner = tp.pruner.GroupNormPruner(
        model,
        task.example,
        importance=tp.importance.GroupMagnitudeImportance(p=2),
        global_pruning=True,
        pruning_ratio=1.0,
        max_pruning_ratio=0.95,
        iterative_steps=200,
        ignored_layers=[module for module in model.modules() if isinstance(module, nn.Linear)],
    )
    while tp.utils.count_ops_and_params(model, task.example)[0] > full * percent / 100:
        pruner.step()
    return model


def fastnas(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """NVIDIA ModelOpt; channels in any number, since 32, its default, is most of these layers."""
    import modelopt.torch.prune as mtp

    ratios = tuple(0.05 * number for number in range(1, 21))
    features = {"*": {"features_ratio": ratios, "feature_divisor": 1}}
    config = {
        "nn.Conv2d": {"*": {"channels_ratio": ratios, "kernel_size": (), "channel_divisor": 1}},
        "nn.BatchNorm2d": features,
        "nn.Linear": features,
    }
    model, _ = mtp.prune(
        copy.deepcopy(trained),
        mode=[("fastnas", config)],
        constraints={"flops": f"{percent}%"},
        dummy_input=task.example,
        config={
            "data_loader": task.batches(augmented=False),
            "max_iter_data_loader": 512 // BATCH_SIZE,
            "collect_func": lambda batch: batch[0],
            "score_func": lambda each: evaluate(each, task.validation_batches())["accuracy"],
            "verbose": False,
        },
    )
    return model


METHODS: dict[str, Method] = {
    "Uniform": uniform,
    "Random": random,
    "AutoSlim-style": autoslim,
    "Torch-Pruning": torch_pruning,
    "ModelOpt FastNAS": fastnas,
    "CafeNet-E": cafenet_e,
    "CafeNet-R": cafenet_r,
    "CafeNet-T": cafenet_t,
}


def _searched(
    task: Task,
    percent: int,
    seed: int,
    place: Path,
    supernet: cafenet.SupernetConfig,
    training: cafenet.TrainConfig,
    algorithm: Algorithm,
) -> nn.Module:
    """A supernet from scratch and a search; algorithms in one place share the supernet."""
    return cafenet.search(
        task.build(seed),
        task.example,
        task.batches(),
        task.validation_batches(),
        f"{percent}%",
        supernet=supernet,
        training=training,
        algorithm=algorithm,
        settings=cafenet.SearchConfig(seed=seed),
        directory=place,
        quiet=True,
    ).model


def _bins(space: cafenet.WidthSpace) -> cafenet.Bins:
    return cafenet.flops_sensitive_bins(space, 0.5)


def _feasible(space: cafenet.WidthSpace, percent: int) -> Feasible:
    costs: dict[str, Any] = {"flops": space.flops, "params": space.params}
    return Feasible(_bins(space), costs, parse_budget(f"{percent}%", space))


def prepared(task: Task, seed: int, epochs: float, place: Path) -> nn.Module:
    """The original network, trained: what pruning tools begin with."""
    model = task.build(seed)
    trained = cafenet.train_model(
        model, task.example, task.batches(), trained_for(epochs, seed), directory=place, quiet=True
    )
    return trained.to(memory_format=torch.contiguous_format)
