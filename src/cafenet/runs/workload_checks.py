"""Checks of the parts that a recipe names, before long work starts."""

import sys
from dataclasses import replace

import torch
from torch import Tensor

from cafenet.errors import DataError, RecipeError, first_line
from cafenet.modules.calling import training_mode
from cafenet.runs.devices import find_device
from cafenet.runs.recipe import Recipe
from cafenet.runs.workload import Workload
from cafenet.searching.algorithms.base import METHODS
from cafenet.searching.budget import costs_in
from cafenet.searching.latency.measure import check_runtime
from cafenet.supernet.build import build_supernet
from cafenet.supernet.train import check_training
from cafenet.training.losses import check_target


def check_workload(workload: Workload) -> None:
    """Check everything that can be known before long work starts.

    That covers names, data, labels, options, budgets and the smallest subnet.

    Args:
        workload: The parts that a recipe names.

    Raises:
        CafeNetError: If something in the recipe cannot be used.
    """
    _check_options(workload)
    batch = next(iter(workload.loader(workload.validation)))
    _check_targets(workload, _output(workload, batch[0].to(workload.device)))
    check_runtime(workload.model, workload.example, workload.recipe.latency)
    steps = workload.settle_divisor()
    if steps and not workload.quiet:
        print(steps, file=sys.stderr)
    build_supernet(workload.model, workload.space, workload.recipe.supernet)
    for budget in workload.budgets:
        workload.feasible(budget)
    _check_trainings(workload)


def _check_options(workload: Workload) -> None:
    """Report mistakes that need neither model nor data, all in one message."""
    recipe, seeds = workload.recipe, workload.recipe.finetune.seeds
    find_device(recipe.device)
    problems = []
    if not seeds or len(set(seeds)) < len(seeds):
        problems.append(f"finetune.seeds must hold at least one seed, each once, but is {list(seeds)}")
    if not recipe.algorithms:
        problems.append(f"algorithms must hold at least one of {', '.join(METHODS)}, but is empty")
    if len(set(recipe.algorithms)) < len(recipe.algorithms):
        problems.append(f"algorithms must hold each once, but is {list(recipe.algorithms)}")
    if recipe.finetune.teacher == "original" and not recipe.baselines.original:
        problems.append("finetune.teacher original needs baselines.original true, but it is false")
    teacher = recipe.finetune.teacher or ""
    if teacher.startswith(("cafenet:", "torchvision:", "timm:")) and not recipe.finetune.teacher_options:
        problems.append(
            f"a teacher must come with weights, but {teacher} has none by itself; give finetune.teacher_options, "
            "as {weights: DEFAULT}, or a FACTORY of your own that loads them"
        )
    problems += _without_effect(recipe)
    if workload.shared is not None and "latency_ms" in costs_in(recipe.budget):
        problems.append(
            "a search that machines share must have no budget in milliseconds, which each would measure for itself, "
            f"but budget is {recipe.budget}; leave out --storage, or use a budget of FLOPs or params"
        )
    if recipe.sampling.random_share and recipe.supernet.sharing == "locally_free" and recipe.supernet.r == 0:
        problems.append(
            f"sampling.random_share is {recipe.sampling.random_share}, but with supernet.r 0 there is one "
            "candidate; raise supernet.r"
        )
    if recipe.sampling.distill and recipe.sampling.full_share == 0 and not recipe.supernet.sort_by_importance:
        problems.append(
            "sampling.distill learns from a trained network, but fresh weights are not; give "
            "sampling.full_share more than 0, or a model with weights and supernet.sort_by_importance true"
        )
    if recipe.finetune.start == "supernet" and recipe.stages.num_stages > 1:
        problems.append(f"finetune.start supernet needs one stage, but there are {recipe.stages.num_stages}")
    if problems:
        raise RecipeError("; ".join(problems))


def _output(workload: Workload, inputs: Tensor) -> Tensor:
    """Return the output of the model, which must be one tensor with one row per example."""
    name = workload.recipe.model.name
    try:
        with training_mode(workload.model, False), torch.no_grad():
            output = workload.model(inputs)
    except Exception as error:  # whatever the user's forward raises
        raise DataError(
            f"the model {name} must take inputs of shape {list(inputs.shape[1:])}, but: {type(error).__name__}: "
            f"{first_line(error)}; see model.options, model.input_size and data.source"
        ) from error
    if not isinstance(output, Tensor) or output.ndim != 2:
        found = list(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise RecipeError(
            f"the model {name} of a recipe must return one tensor of shape (batch, classes), but returns {found}; "
            "give a FACTORY whose forward does, or use cafenet.search with a loss and a metric of your own"
        )
    return output


def _check_targets(workload: Workload, output: Tensor) -> None:
    """Check that labels and outputs fit each other and the loss."""
    data, loss = workload.whole_train, workload.recipe.loss
    if data.is_multi_label != (loss == "bce"):
        kind = "attributes" if data.is_multi_label else "classes"
        raise DataError(f"the loss must be bce for attributes alone, but is {loss} for the {kind} of {data.name}")
    if output.shape[1] != len(data.classes):
        raise DataError(
            f"the model must have one output a class, but {workload.recipe.model.name} has {output.shape[1]} and "
            f"{data.name} has {len(data.classes)} classes; give --model.options.num_classes {len(data.classes)}"
        )
    for part in (data.targets, workload.test.targets):
        check_target(loss, output[:1].expand(len(part), *output.shape[1:]), part)


def _check_trainings(workload: Workload) -> None:
    """Check the options of every training, and that its data fill a step."""
    recipe = workload.recipe
    final, random = recipe.finetune, recipe.baselines.random_epochs
    trainings = [(replace(recipe.train, seed=recipe.seed), workload.train)]
    trainings += [(final.training(seed), workload.whole_train) for seed in recipe.finetune.seeds]
    if recipe.baselines.random_widths:
        trainings.append((replace(final.training(recipe.seed), epochs=random), workload.train))
    for config, data in trainings:
        check_training(config, workload.loader(data, augmented_batch=config.batch_size), workload.device, recipe.loss)
    if recipe.finetune.teacher not in (None, "original"):
        _check_teacher(workload)


def _check_teacher(workload: Workload) -> None:
    """Check that the outputs of the teacher have the shape of the model's outputs."""
    shapes = []
    for each in (workload.model, workload.teacher()):
        with training_mode(each, False), torch.no_grad():
            output = each(workload.example)
        shapes.append(list(output.shape[1:]) if isinstance(output, Tensor) else type(output).__name__)
    if shapes[0] != shapes[1]:
        raise RecipeError(
            f"a teacher must have the model's outputs, {shapes[0]}, but {workload.recipe.finetune.teacher} has "
            f"{shapes[1]}; see finetune.teacher_options"
        )


def _without_effect(recipe: Recipe) -> list[str]:
    """Return options that must not be set, because other keys of the recipe decide."""
    given = {
        "train.seed": (recipe.train.seed, "seed"),
        "finetune.seed": (recipe.finetune.seed, "finetune.seeds"),
        "train.num_workers": (recipe.train.num_workers, "data.num_workers"),
        "finetune.num_workers": (recipe.finetune.num_workers, "data.num_workers"),
    }
    return [
        f"{name} must be left out, since {deciding} decides, but is {value}"
        for name, (value, deciding) in given.items()
        if value
    ]
