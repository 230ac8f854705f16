"""Every method: a trained network in, one of at most half the FLOPs out, with the weights that the tool gives it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

import cafenet
from benchmarks.transformers_peers.networks import Attention
from benchmarks.transformers_peers.tasks import (
    FINETUNE_EPOCHS,
    NUM_WIDTHS,
    SUPERNET_EPOCHS,
    Task,
    trained_for,
)
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.bins import flops_sensitive_bins
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.plain_training import train_model

PERCENT = 50
STEP = 0.01

Method: TypeAlias = Callable[[Task, nn.Module, int, Path], nn.Module]
"""method(task, trained network, seed, directory) -> fine-tuned slim network"""


def finetuned(task: Task, slim: nn.Module, epochs: int, seed: int) -> nn.Module:
    """The same fine-tuning for every method."""
    return train_model(slim, task.example, task.train, trained_for(task, epochs, seed), loss=task.loss, quiet=True)


def uniform(task: Task, trained: nn.Module, seed: int, place: Path, epochs: int = FINETUNE_EPOCHS) -> nn.Module:
    """One factor on all widths; the most important units."""
    space = cafenet.trace(trained, task.example)
    bins = flops_sensitive_bins(space)
    feasible = Feasible(
        bins, {"flops": space.flops, "params": space.params}, parse_budget(f"{PERCENT}%", space), (0, 1)
    )
    slim = space.extract(uniform_widths(space, feasible).tolist(), model=sort_by_importance(space, trained))
    return finetuned(task, slim, epochs, seed)


def uniform_long(task: Task, trained: nn.Module, seed: int, place: Path) -> nn.Module:
    """Uniform, fine-tuned for as many epochs as CafeNet takes in all."""
    return uniform(task, trained, seed, place, SUPERNET_EPOCHS + FINETUNE_EPOCHS)


def cafenet_t(task: Task, trained: nn.Module, seed: int, place: Path) -> nn.Module:
    """`cafenet.search` on the trained network; what it finds goes on from the supernet's weights."""
    result = cafenet.search(
        trained,
        task.train,
        task.validation,
        f"{PERCENT}%",
        train=trained_for(task, SUPERNET_EPOCHS, seed),
        finetune=trained_for(task, FINETUNE_EPOCHS, seed),
        loss=task.loss,
        metric=task.metric,
        options=cafenet.SearchOptions(algorithm=cafenet.Trend(samples=NUM_WIDTHS)),
        trained=True,
        baseline=False,
        seed=seed,
        directory=place / "search",
        quiet=True,
    )
    return result.model


def pruned(
    task: Task, trained: nn.Module, seed: int, place: Path, epochs: int = FINETUNE_EPOCHS, *, heads: bool = False
) -> nn.Module:
    """Torch-Pruning by group magnitudes; the smallest ratio that meets the budget. Sizes of heads, as by default."""
    full = task.flops(trained)
    for number in range(1, int(1 / STEP)):
        slim = _pruned_by(number * STEP, trained, task, heads=heads)
        if task.flops(slim) <= full * PERCENT / 100:
            return finetuned(task, slim, epochs, seed)
    raise RuntimeError(f"Torch-Pruning did not reach {PERCENT}% of the FLOPs of {task.name}")


def pruned_long(task: Task, trained: nn.Module, seed: int, place: Path) -> nn.Module:
    """Torch-Pruning, fine-tuned for as many epochs as CafeNet takes in all."""
    return pruned(task, trained, seed, place, SUPERNET_EPOCHS + FINETUNE_EPOCHS)


def pruned_heads(task: Task, trained: nn.Module, seed: int, place: Path) -> nn.Module:
    """Torch-Pruning with whole heads, fine-tuned for as many epochs as CafeNet takes in all."""
    return pruned(task, trained, seed, place, SUPERNET_EPOCHS + FINETUNE_EPOCHS, heads=True)


def _pruned_by(ratio: float, trained: nn.Module, task: Task, *, heads: bool) -> nn.Module:
    """One step of Torch-Pruning with `num_heads`, as its examples for vision transformers say."""
    import torch_pruning as tp

    model: Any = copy.deepcopy(trained).eval()
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    pruner = tp.pruner.BasePruner(
        model,
        task.example,
        importance=tp.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=ratio,
        ignored_layers=[model.head],
        num_heads={module.qkv: module.num_heads for module in attentions},
        prune_num_heads=heads,
        prune_head_dims=not heads,
        head_pruning_ratio=ratio if heads else 0.0,
    )
    pruner.step()
    for module in attentions:
        module.num_heads = pruner.num_heads[module.qkv]
        module.head_dim = module.qkv.out_features // (3 * module.num_heads)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model


METHODS: dict[str, Method] = {
    "Uniform": uniform,
    "Uniform, as long in all": uniform_long,
    "Torch-Pruning, sizes of heads": pruned,
    "Torch-Pruning, sizes of heads, as long in all": pruned_long,
    "Torch-Pruning, heads, as long in all": pruned_heads,
    "CafeNet": cafenet_t,
}


def original(task: Task, seed: int, place: Path, epochs: int) -> nn.Module:
    """The whole network, trained once a seed and kept."""
    file = place / f"original-{epochs}.pt"
    model = task.build(seed)
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model
    trained = train_model(model, task.example, task.train, trained_for(task, epochs, seed), loss=task.loss, quiet=True)
    place.mkdir(parents=True, exist_ok=True)
    torch.save(trained.state_dict(), file)
    return trained.eval()
