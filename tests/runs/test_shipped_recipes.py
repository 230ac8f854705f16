"""Every shipped recipe is valid: it loads, its network is traced, its budgets can be met, and its trainings take steps.

Steps are taken on a few images of noise with a batch of 2, and on smaller images than the recipe's where those are
large, since widths do not depend on the side. Everything else is the recipe's own: augmentation, loss, optimiser,
schedule, choice of candidates, distillation.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
import yaml

from cafenet.data import ImageData, train_loader
from cafenet.pipeline.stage_plan import plan_stages
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import as_tree, load_recipe, recipe_parser, to_yaml
from cafenet.runs.recipe_texts import recipe_text, shipped_recipes
from cafenet.runs.workload import Workload
from cafenet.supernet.build import SupernetConfig, build_supernet
from cafenet.supernet.plain_training import train_model
from cafenet.supernet.train import train_supernet
from cafenet.training.losses import check_target

NAMES = list(shipped_recipes())
SMALL = [name for name in NAMES if name.endswith("-small")]
PAPER = [name for name in NAMES if name not in SMALL and name != "demo"]
LONGEST_SIDE = 48


@cache
def shipped(name: str) -> Recipe:
    return load_recipe(name)


@cache
def workload(name: str) -> Workload:
    return Workload(shipped(name), quiet=True)


@cache
def parser():
    return recipe_parser()


def noise(name: str) -> ImageData:
    """Four images for two steps: the recipe's size, or less."""
    load = workload(name)
    channels, height, width = load.input_size
    shrink = max(1.0, max(height, width) / LONGEST_SIDE)
    generator = torch.Generator().manual_seed(0)
    size = (4, channels, int(height / shrink), int(width / shrink))
    images = torch.randint(256, size, generator=generator, dtype=torch.uint8)
    num_outputs = load.model(torch.zeros(2, *size[1:])).shape[1]
    if load.recipe.loss == "bce":
        targets = torch.randint(2, (4, num_outputs), generator=generator).float()
    else:
        targets = torch.randint(num_outputs, (4,), generator=generator)
    classes = tuple(map(str, range(num_outputs)))
    return ImageData("noise", images, targets, classes, (0.5,) * channels, (0.25,) * channels)


def pairs_of(data: ImageData, recipe: Recipe):
    """Augmented batches of two."""
    size = tuple(data.images.shape[2:])
    return train_loader(data, 2, recipe.data.augmentation, size=size, num_workers=0)


# what every recipe must be


def test_the_experiments_of_the_paper_are_all_there():
    assert PAPER == [
        "celeba-mobilenet-v2",
        "celeba-resnet18",
        "cifar10-mobilenet-v2",
        "cifar10-vgg",
        "imagenet-efficientnet-b0-0.5x",
        "imagenet-efficientnet-b0-1.0x",
        "imagenet-mobilenet-v2",
        "imagenet-mobilenet-v2-autoslim",
        "imagenet-resnet18",
        "imagenet-resnet34",
        "imagenet-resnet50",
        "imagenet-resnet50-autoslim",
    ]
    assert SMALL == ["celeba-mobilenet-v2-small", "cifar10-mobilenet-v2-small", "cifar10-vgg-small"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_it_is_in_one_line_and_survives_being_written(name: str):
    recipe = shipped(name)
    assert 20 < len(recipe.description) <= 120
    assert "\n" not in recipe.description
    again = as_tree(Recipe, parser(), parser().parse_object(yaml.safe_load(to_yaml(recipe))))
    assert again == recipe


@pytest.mark.parametrize("name", NAMES)
def test_budgets_lie_below_the_network_and_can_be_met(name: str):
    load = workload(name)
    assert load.space.groups
    full = {"flops": load.space.flops(), "params": load.space.params()}
    for budget in load.budgets:
        assert all(cap.limit < full[cap.cost] for cap in budget.caps)
        for stage in plan_stages(budget, full, load.recipe.supernet.beta, load.recipe.stages):
            assert all(cap.limit < full[cap.cost] for cap in stage.budget.caps)
        feasible = load.feasible(budget)
        assert feasible.fits(feasible.uniform()[None])[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_supernet_and_a_slim_model_take_two_steps(name: str):
    load, recipe = workload(name), shipped(name)
    data = noise(name)
    check_target(recipe.loss, load.model(torch.zeros(2, *data.images.shape[1:])), data.targets[:2])

    supernet = build_supernet(load.model, load.space, recipe.supernet, seed=recipe.seed)
    result = train_supernet(
        supernet,
        pairs_of(data, recipe),
        replace(recipe.train, batch_size=2),
        sampling=replace(recipe.sampling, full_share=0.0),
        loss=recipe.loss,
        quiet=True,
        max_steps=2,
    )
    assert result.steps == 2
    assert 0 < result.last_loss < 100

    budget = load.budgets[-1]
    bins = load.feasible(budget)
    widths = bins.bins.widths(bins.uniform()).tolist()
    slim = load.space.extract(dict(zip(load.space.full_widths, widths, strict=True)), model=load.model)
    final = recipe.finetune
    trained = train_model(
        slim,
        torch.zeros(1, *data.images.shape[1:]),
        pairs_of(data, recipe),
        replace(final, batch_size=2, epochs=1),
        loss=recipe.loss,
        teacher=load.model if recipe.finetune.teacher == "original" else None,
        distill=recipe.finetune.distill if recipe.finetune.teacher == "original" else None,
        quiet=True,
    )
    before, after = slim.state_dict(), trained.state_dict()
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert recipe.finetune.teacher in (None, "original")
    assert recipe.baselines.original or recipe.finetune.teacher is None


# what the paper says


def test_the_paper_shares_freely_and_the_default_does_not():
    """Shipped recipes show the paper's sharing, and beside it the fixed sharing, which is the default."""
    assert SupernetConfig().r == 0
    names = list(shipped_recipes())
    assert {name: shipped(name).supernet.r for name in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", PAPER)
def test_published_rows_carry_their_numbers_and_their_place(name: str):
    recipe = shipped(name)
    budgets = recipe.budget.split(",")
    assert recipe.reference
    for row in recipe.reference:
        assert row.method
        assert row.source
        assert row.accuracy.endswith("%")
        assert 50 < float(row.accuracy[:-1]) < 100
        assert row.budget in budgets or row.method == "Original"
    for budget in budgets:
        methods = {row.method for row in recipe.reference if row.budget == budget}
        assert {"CafeNet-E", "CafeNet-R"} <= methods
    assert len({tuple(vars(row).values()) for row in recipe.reference}) == len(recipe.reference)


@pytest.mark.parametrize(
    ("name", "num_rows", "methods"),
    [
        ("cifar10-vgg", 24, {"GAL", "DCP", "Sliming", "PS", "AOFP", "CGNets", "Fixed sharing"}),
        ("cifar10-mobilenet-v2", 24, {"DCP", "MuffNet", "AutoSlim", "Fixed sharing"}),
        (
            "imagenet-resnet50",
            31,
            {"AutoSlim", "MetaPruning", "LEGR", "GBN", "SFP", "FPGM", "TAS", "AutoPruner"},
        ),
        ("imagenet-resnet34", 31, {"Rethinking", "MIL", "PF", "CNN-FCF", "FPGM", "SFP", "GS", "CGNet"}),
        ("imagenet-resnet18", 28, {"TAS", "MIL", "NA", "SFP", "MFP", "DMCP", "FPGM", "DCP", "CGNet", "FBS"}),
        ("imagenet-mobilenet-v2", 29, {"MetaPruning", "LEGR", "AutoSlim", "TAS", "AMC", "MuffNet"}),
        ("imagenet-efficientnet-b0-0.5x", 5, set()),
        ("imagenet-efficientnet-b0-1.0x", 5, set()),
        ("celeba-mobilenet-v2", 17, set()),
        ("celeba-resnet18", 17, set()),
    ],
)
def test_all_methods_of_a_table_are_there(name: str, num_rows: int, methods: set[str]):
    rows = shipped(name).reference
    assert len(rows) == num_rows
    assert {row.method for row in rows} == methods | {"Original", "Uniform", "Random", "CafeNet-R", "CafeNet-E"}


@pytest.mark.parametrize(
    ("name", "method", "budget", "accuracy"),
    [
        ("imagenet-resnet50", "CafeNet-E", "570M", "73.3%"),
        ("imagenet-mobilenet-v2", "CafeNet-R", "50M", "64.3%"),
        ("imagenet-resnet50-autoslim", "CafeNet-E", "1.0G", "74.5%"),
        ("imagenet-mobilenet-v2-autoslim", "AutoSlim", "217M", "73.0%"),
        ("cifar10-vgg", "Uniform", "115M", "92.95%"),
        ("imagenet-efficientnet-b0-1.0x", "CafeNet-E", "385M", "76.83%"),
        ("celeba-resnet18", "Random", "1G", "91.84%"),
    ],
)
def test_a_published_number(name: str, method: str, budget: str, accuracy: str):
    found = [row.accuracy for row in shipped(name).reference if (row.method, row.budget) == (method, budget)]
    assert found == [accuracy]


@pytest.mark.parametrize("name", PAPER)
def test_search_settings_of_the_paper(name: str):
    recipe = shipped(name)
    assert (recipe.supernet.r, recipe.supernet.beta, recipe.supernet.choice) == (1, 1.0, "exact")
    assert recipe.stages.num_stages == (3 if name.startswith("cifar10") else 1)
    assert recipe.stages.alpha == 2
    assert recipe.algorithms == ("evolution", "random")
    assert (recipe.evolution.population, recipe.evolution.iterations) == (40, 50)
    assert recipe.random.samples == 2000
    assert recipe.sampling.random_share == 0
    assert recipe.baselines.uniform
    if not name.endswith("-autoslim"):
        assert recipe.baselines.fixed
        assert recipe.baselines.random_widths == 20
        assert recipe.finetune.training(recipe.train.seed) == recipe.train
    text = recipe_text(name)
    assert text.count("# a2") >= 5
    assert "not said" in text


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "optimizer", "lr", "weight_decay", "schedule"),
    [
        ("cifar10-vgg", 400, 128, "SGD", 0.1, 1e-4, "step"),
        ("cifar10-mobilenet-v2", 300, 256, "SGD", 0.1, 5e-5, "cosine"),
        ("imagenet-mobilenet-v2", 300, 256, "SGD", 0.1, 5e-5, "cosine"),
        ("imagenet-resnet18", 300, 256, "SGD", 0.1, 1e-4, "cosine"),
        ("imagenet-resnet34", 300, 256, "SGD", 0.1, 1e-4, "cosine"),
        ("imagenet-resnet50", 300, 256, "SGD", 0.1, 1e-4, "cosine"),
        ("imagenet-efficientnet-b0-0.5x", 300, 256, "RMSprop", 0.13, 1e-5, "exponential"),
        ("imagenet-efficientnet-b0-1.0x", 300, 256, "RMSprop", 0.13, 1e-5, "exponential"),
        ("celeba-mobilenet-v2", 15, 64, "SGD", 0.1, 5e-5, "cosine"),
        ("celeba-resnet18", 10, 64, "SGD", 0.1, 1e-4, "cosine"),
    ],
)
def test_training_of_the_paper(
    name: str, epochs: int, batch_size: int, optimizer: str, lr: float, weight_decay: float, schedule: str
):
    training = shipped(name).finetune
    assert (training.epochs, training.batch_size) == (epochs, batch_size)
    assert (training.optimizer.name, training.optimizer.lr) == (optimizer, lr)
    assert training.optimizer.weight_decay == weight_decay
    assert training.optimizer.options["momentum"] == 0.9
    assert training.schedule.name == schedule
    if schedule == "cosine":
        assert training.schedule.final_lr == 1e-5
    if schedule == "step":
        assert training.schedule.milestones == (150, 225, 300)
    if schedule == "exponential":
        assert training.optimizer.options["eps"] == 1e-3
        assert (training.schedule.gamma, training.schedule.every_epochs) == (0.96, 3)
        assert training.schedule.warmup_epochs == 5


def test_what_single_networks_are_trained_with():
    assert shipped("imagenet-mobilenet-v2").finetune.teacher == "original"
    assert all(shipped(f"imagenet-resnet{depth}").data.augmentation.erasing == 0.4 for depth in (18, 34, 50))
    assert shipped("imagenet-mobilenet-v2").data.augmentation.erasing == 0


def test_efficientnet_at_its_own_flops_is_searched_in_a_wider_one():
    load = workload("imagenet-efficientnet-b0-1.0x")
    assert load.space.flops() == pytest.approx(1.5 * 385.8e6, rel=0.01)
    assert [cap.limit for cap in load.budgets[0].caps] == [385e6]


# recipes that finish on two cores


@pytest.mark.parametrize("name", SMALL)
def test_small_recipes_are_small(name: str):
    load, recipe = workload(name), shipped(name)
    assert load.space.flops() < 6.5e6
    scored = {"trend": recipe.trend.samples}
    scored["evolution"] = recipe.evolution.population * recipe.evolution.iterations
    assert [scored[algorithm] for algorithm in recipe.algorithms] == [300]
    assert recipe.data.num_train is not None
    assert 1000 <= round(recipe.data.num_train * recipe.data.validation_share) <= 2500
    assert recipe.scoring.calibration_size < 1000
    assert len(recipe.finetune.seeds) >= 2
    assert recipe.baselines.original
    assert recipe.baselines.uniform
    assert recipe.baselines.fixed
    assert min(group.num_bins for group in load.feasible(load.budgets[0]).bins.groups) >= 2
