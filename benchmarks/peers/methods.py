"""Every method: a trained network and a share of FLOPs in, slim networks out, used as its documentation says.

The body of each function is the code that a user needs for it; its lines are counted for the table.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

import cafenet
from benchmarks.peers.tasks import Task, trained_for
from cafenet.scoring.evaluation import evaluate
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.bins import Bins, flops_sensitive_bins
from cafenet.space.importance import sort_by_importance
from cafenet.training.distillation import DistillConfig

SUPERNET_EPOCHS = 20
NUM_SEARCHED = 300
"""Widths, in all stages together."""
RANDOM_WIDTHS, RANDOM_EPOCHS = 5, 4
SPARSE_EPOCHS, PRUNING_STEPS = 10, 200
ONE_STAGE = cafenet.StagesConfig()
TWO_STAGES = cafenet.StagesConfig(2, alpha=1.0, carry_weights=True)
"""The default of a search, but for one from scratch at half the FLOPs or more."""

Method: TypeAlias = Callable[[Task, nn.Module, int, int, Path], nn.Module]
"""method(task, trained network, percent, seed, directory) -> slim network with the weights that the tool gives it."""


def uniform(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """One factor on the channels of all groups; the most important channels."""
    space = cafenet.trace(trained, task.example)
    widths = uniform_widths(space, _feasible(space, percent))
    return space.extract(widths, model=sort_by_importance(space, trained))


def uniform_in_bins(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """One factor for all groups, rounded to the bins of a search; what is left goes to single bins."""
    space = cafenet.trace(trained, task.example)
    feasible = _feasible(space, percent)
    bin_counts = feasible.fill(feasible.uniform(), np.random.default_rng(seed), low=0.99, n=1)[0]
    return space.extract(_bins(space).widths(bin_counts), model=sort_by_importance(space, trained))


def random(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Some widths trained for a while; the best on the validation set."""
    space = cafenet.trace(trained, task.example)
    bins = _bins(space)
    rows = _feasible(space, percent).sample(RANDOM_WIDTHS, np.random.default_rng(seed))
    scores = []
    for number, row in enumerate(rows):
        slim = cafenet.supernet.plain_training.initialised(space.extract(bins.widths(row), model=trained), seed)
        config = trained_for(RANDOM_EPOCHS, seed)
        slim = cafenet.train_model(
            slim, task.example, task.batches(), config, directory=place / f"random-{percent}-{number}", quiet=True
        )
        scores.append(evaluate(slim, task.validation_batches())["accuracy"])
    return space.extract(bins.widths(rows[int(np.argmax(scores))]), model=sort_by_importance(space, trained))


def autoslim(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """The fixed sharing over all widths, searched greedily, as AutoSlim does."""
    supernet = cafenet.SupernetConfig(r=0, beta=0.5)
    training, sampling = trained_for(SUPERNET_EPOCHS, seed), cafenet.SamplingConfig(flops_band=None, full_share=0.0)
    model, algorithm = task.build(seed), cafenet.Greedy()
    return _searched(task, model, percent, seed, place / "fixed", supernet, training, sampling, algorithm, ONE_STAGE)


def cafenet_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Ours as it is by default for a training from scratch: by trend, one stage at half the FLOPs and two at less."""
    stages = ONE_STAGE if percent >= 50 else TWO_STAGES
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(NUM_SEARCHED), stages=stages)


def cafenet_half_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """The default with half of the differences between groups believed."""
    stages = ONE_STAGE if percent >= 50 else TWO_STAGES
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(NUM_SEARCHED, trust=0.5), stages=stages)


def cafenet_other_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """The other number of stages."""
    stages = TWO_STAGES if percent >= 50 else ONE_STAGE
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(NUM_SEARCHED), stages=stages)


def cafenet_more_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Two stages with twice as many widths."""
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(2 * NUM_SEARCHED), stages=TWO_STAGES)


def cafenet_one_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Search by trend in one stage that deviates from uniform widths by a factor of two."""
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(NUM_SEARCHED, farthest=2.0))


def cafenet_one_e(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Evolutionary, on the same supernet."""
    algorithm = cafenet.Evolution(population=30, iterations=NUM_SEARCHED // 30)
    return _from_trained(task, trained, percent, seed, place, algorithm)


def cafenet_one_r(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Random, on the same supernet."""
    return _from_trained(task, trained, percent, seed, place, cafenet.RandomSearch(NUM_SEARCHED))


def cafenet_free_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Search by trend on a supernet with the paper's locally free sharing."""
    return _from_trained(task, trained, percent, seed, place, cafenet.Trend(NUM_SEARCHED, farthest=2.0), r=1)


def cafenet_bilateral_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """The default on a supernet with BCNet's sharing, which takes twice the time."""
    stages, algorithm = ONE_STAGE if percent >= 50 else TWO_STAGES, cafenet.Trend(NUM_SEARCHED)
    return _from_trained(task, trained, percent, seed, place, algorithm, sharing="bilateral", stages=stages)


def cafenet_losses_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Search by the trend of losses, of widths that lie farther apart."""
    algorithm = cafenet.Trend(NUM_SEARCHED, spread=0.7, farthest=2.0)
    return _from_trained(task, trained, percent, seed, place, algorithm, metric="negative_loss")


def cafenet_distilled_t(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Search with all widths learning from the trained network, too."""
    distill = DistillConfig()
    algorithm = cafenet.Trend(NUM_SEARCHED, farthest=2.0)
    return _from_trained(task, trained, percent, seed, place, algorithm, distill=distill)


def torch_pruning(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Group norms, global, in steps until the FLOPs are met."""
    model, pruner = _group_norm_pruner(trained, task.example)
    return _pruned_in_steps(model, pruner, task.example, percent)


def torch_pruning_sparse(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """Prune by Torch-Pruning after training that makes groups sparse, as its CIFAR-10 scripts do."""
    model, pruner = _group_norm_pruner(trained, task.example)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SPARSE_EPOCHS)
    torch.manual_seed(seed)
    for _ in range(SPARSE_EPOCHS):
        model.train()
        pruner.update_regularizer()
        for images, labels in task.batches():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            pruner.regularize(model)
            optimizer.step()
        schedule.step()
    return _pruned_in_steps(model, pruner, task.example, percent)


def fastnas(task: Task, trained: nn.Module, percent: int, seed: int, place: Path) -> nn.Module:
    """NVIDIA ModelOpt; channels in any number, since 32, its default, is most of these layers."""
    import modelopt.torch.prune as mtp

    # A depthwise layer of one channel raises an IndexError in nvidia-modelopt 0.47, so these begin at 10%.
    is_depthwise = any(isinstance(module, nn.Conv2d) and module.groups > 1 for module in trained.modules())
    ratios = tuple(0.05 * number for number in range(2 if is_depthwise else 1, 21))
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
            "collect_func": lambda batch: batch[0],
            "score_func": lambda each: evaluate(each, task.validation_batches())["accuracy"],
            "verbose": False,
        },
    )
    return model


METHODS: dict[str, Method] = {
    "Uniform": uniform,
    "Uniform in bins": uniform_in_bins,
    "Random": random,
    "AutoSlim-style": autoslim,
    "Torch-Pruning": torch_pruning,
    "Torch-Pruning, sparse training": torch_pruning_sparse,
    "ModelOpt FastNAS": fastnas,
    "CafeNet-T": cafenet_t,
    "CafeNet-T, half trust": cafenet_half_t,
    "CafeNet-T, other number of stages": cafenet_other_t,
    "CafeNet-T, two stages of 300 widths": cafenet_more_t,
    "CafeNet-T, one stage, twice from uniform": cafenet_one_t,
    "CafeNet-E, one stage": cafenet_one_e,
    "CafeNet-R, one stage": cafenet_one_r,
    "CafeNet-T, one stage, r=1": cafenet_free_t,
    "CafeNet-T, bilateral": cafenet_bilateral_t,
    "CafeNet-T, one stage, losses farther apart": cafenet_losses_t,
    "CafeNet-T, one stage, distilled": cafenet_distilled_t,
}


def _group_norm_pruner(trained: nn.Module, example: Tensor) -> tuple[nn.Module, Any]:
    """A copy and its pruner; at most 70% of a layer go, as its script for VGG says, or the first layer loses all."""
    import torch_pruning as tp

    model = copy.deepcopy(trained).eval()
    pruner = tp.pruner.GroupNormPruner(
        model,
        example,
        importance=tp.importance.GroupMagnitudeImportance(p=2),
        reg=5e-4,
        global_pruning=True,
        pruning_ratio=1.0,
        max_pruning_ratio=0.7,
        iterative_steps=PRUNING_STEPS,
        ignored_layers=[module for module in model.modules() if isinstance(module, nn.Linear)],
    )
    return model, pruner


def _pruned_in_steps(model: nn.Module, pruner: Any, example: Tensor, percent: int) -> nn.Module:
    import torch_pruning as tp

    model.eval()
    full, _ = tp.utils.count_ops_and_params(model, example)
    for _ in range(PRUNING_STEPS):
        pruner.step()
        if tp.utils.count_ops_and_params(model, example)[0] <= full * percent / 100:
            return model
    raise RuntimeError(f"Torch-Pruning did not reach {percent}% of FLOPs")


def _from_trained(
    task: Task,
    trained: nn.Module,
    percent: int,
    seed: int,
    place: Path,
    algorithm: Algorithm,
    *,
    r: int = 0,
    sharing: Literal["locally_free", "bilateral"] = "locally_free",
    metric: str = "accuracy",
    distill: DistillConfig | None = None,
    stages: cafenet.StagesConfig = ONE_STAGE,
) -> nn.Module:
    """A supernet that begins with the trained network, its most important channels in front."""
    supernet = cafenet.SupernetConfig(r=r, beta=0.5, sharing=sharing, sort_by_importance=True)
    training = trained_for(SUPERNET_EPOCHS, seed, lr=0.05, num_stages=stages.num_stages)
    sampling = cafenet.SamplingConfig(full_share=0.0, distill=distill)
    kinds = {
        "by-loss": metric != "accuracy",
        f"r{r}": r > 0,
        sharing: sharing == "bilateral",
        "distilled": distill is not None,
        "staged": stages is TWO_STAGES,
    }
    place = place / "-".join([f"{percent}-pretrained", *(kind for kind, is_so in kinds.items() if is_so)])
    return _searched(task, trained, percent, seed, place, supernet, training, sampling, algorithm, stages, metric)


def _searched(
    task: Task,
    model: nn.Module,
    percent: int,
    seed: int,
    place: Path,
    supernet: cafenet.SupernetConfig,
    training: cafenet.TrainConfig,
    sampling: cafenet.SamplingConfig,
    algorithm: Algorithm,
    stages: cafenet.StagesConfig,
    metric: str = "accuracy",
) -> nn.Module:
    """A supernet and a search; algorithms in one place share the supernet."""
    return cafenet.search(
        model,
        task.batches(),
        task.validation_batches(),
        f"{percent}%",
        train=training,
        finetune=False,  # the benchmark trains all methods alike itself
        trained=False,  # all options are given
        metric=metric,
        options=cafenet.SearchOptions(supernet=supernet, sampling=sampling, stages=stages, algorithm=algorithm),
        example_inputs=task.example,
        seed=seed,
        directory=place,
        quiet=True,
    ).model


def _bins(space: cafenet.WidthSpace) -> Bins:
    return flops_sensitive_bins(space, 0.5)


def _feasible(space: cafenet.WidthSpace, percent: int) -> Feasible:
    costs: dict[str, Any] = {"flops": space.flops, "params": space.params}
    return Feasible(_bins(space), costs, parse_budget(f"{percent}%", space))


HELPERS = (_from_trained, _searched, _bins, _feasible, _group_norm_pruner, _pruned_in_steps)
"""Parts of several methods, counted with each."""


def prepared(task: Task, seed: int, epochs: float, place: Path) -> nn.Module:
    """The original network, trained: what pruning tools begin with."""
    model = task.build(seed)
    trained = cafenet.train_model(
        model, task.example, task.batches(), trained_for(epochs, seed), directory=place, quiet=True
    )
    return trained.to(memory_format=torch.contiguous_format)
