"""Optimisers by name, and learning rates by hand."""

import inspect

import numpy as np
import pytest
import torch

from cafenet.errors import TrainingError
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate, shortened
from tests.helpers.small_training import log_of, supernet_of, trained


def after_three_steps(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> torch.Tensor:
    """Gradients 2w, so that the weight goes to zero."""
    for _ in range(3):
        weight.grad = 2 * weight.detach()
        optimizer.step()
    return weight.detach()


def two_weights() -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))


@pytest.mark.parametrize(
    ("config", "reference"),
    [
        (OptimizerConfig(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4)),
        (
            OptimizerConfig(lr=0.05, weight_decay=0.0, options={"nesterov": True}),
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
        ),
        (OptimizerConfig(options={"momentum": 0}), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=1e-4)),
        (
            OptimizerConfig("RMSprop", lr=0.01, options={"alpha": 0.9, "eps": 1e-3}),
            lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=1e-4),
        ),
        (OptimizerConfig("AdamW", lr=0.01, weight_decay=0), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0)),
        (OptimizerConfig("Adam", lr=0.01), lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-4)),
        (OptimizerConfig("Rprop", lr=0.01, weight_decay=0), lambda p: torch.optim.Rprop(p, lr=0.01)),
    ],
)
def test_an_optimiser_is_the_one_of_torch(config, reference):
    mine, theirs = two_weights()
    mine = after_three_steps(build_optimizer(config, [mine]), mine)
    assert torch.equal(mine, after_three_steps(reference([theirs]), theirs))


def names_of_torch() -> list[str]:
    return [
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
    ]


@pytest.mark.parametrize("name", sorted(set(names_of_torch()) - {"LBFGS", "SparseAdam", "Muon"}))
def test_any_optimiser_of_torch_trains(name):
    before = supernet_of()
    optimizer = OptimizerConfig(name, lr=0.01, weight_decay=0.0)
    after = trained(supernet_of(), max_steps=2, optimizer=optimizer)
    assert not torch.equal(before.model.head.weight, after.model.head.weight)


def test_unknown_names_list_the_near_misses():
    with pytest.raises(TrainingError, match=r"has no optimiser 'SDG'; did you mean .*SGD"):
        OptimizerConfig("SDG")
    with pytest.raises(TrainingError, match=r"did you mean .*RMSprop"):
        OptimizerConfig("rmsprop")
    with pytest.raises(TrainingError, match=r"it has .*Adam.*SGD"):
        OptimizerConfig("???")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"nestorov": True}}, "does not take these options: .*nestorov"),
        ({"lr": -1.0}, "lr must be a number of at least 0, but is -1.0"),
        ({"name": "Adam", "options": {"momentum": 0.9}}, "does not take these options: .*momentum"),
        ({"name": "Rprop"}, "does not take these options: .*weight_decay"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(TrainingError, match=message):
        OptimizerConfig(**options)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_optimisers_that_need_another_loop(name):
    with pytest.raises(TrainingError, match=f"{name} needs a closure or sparse gradients"):
        OptimizerConfig(name, weight_decay=0)


def rates(config: ScheduleConfig, epochs: list[float], num_epochs: float = 8) -> list[float]:
    return [learning_rate(config, 0.1, epoch, num_epochs) for epoch in epochs]


def test_cosine():
    config = ScheduleConfig("cosine", final_lr=0.02)
    # 0.02 + 0.08 * (1 + cos(pi * epoch / 8)) / 2; a third of the way the cosine is a half
    assert rates(config, [0, 4, 8]) == pytest.approx([0.1, 0.06, 0.02])
    assert rates(config, [8 / 3, 16 / 3]) == pytest.approx([0.08, 0.04])
    assert rates(config, [9]) == pytest.approx([0.02])


def test_cosine_after_a_warm_up():
    config = ScheduleConfig("cosine", final_lr=0.0, warmup_epochs=2)
    # up to 0.1 in two epochs, then half-way at epoch 2 + 6/2
    assert rates(config, [0, 0.5, 1, 2, 5, 8]) == pytest.approx([0, 0.025, 0.05, 0.1, 0.05, 0])


def test_step():
    config = ScheduleConfig("step", milestones=(0.5, 0.75), gamma=0.1)
    assert rates(config, [0, 3.9, 4, 5.9, 6, 7]) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    in_epochs = ScheduleConfig("step", milestones=(1, 3), gamma=0.5, warmup_epochs=0.5)
    assert rates(in_epochs, [0.25, 0.5, 1, 2.9, 3]) == pytest.approx([0.05, 0.1, 0.05, 0.05, 0.025])


def test_exponential():
    config = ScheduleConfig("exponential", gamma=0.5, every_epochs=2, warmup_epochs=1)
    # 0.1 from epoch 1 on, halved at 3, 5, 7
    assert rates(config, [0.5, 1, 2.9, 3, 5, 7]) == pytest.approx([0.05, 0.1, 0.1, 0.05, 0.025, 0.0125])


@pytest.mark.parametrize(
    "config",
    [
        ScheduleConfig(),
        ScheduleConfig(warmup_epochs=20),
        ScheduleConfig("step", milestones=(0.5, 0.75), warmup_epochs=10),
        ScheduleConfig("step", milestones=(50, 75, 100, 120)),
        ScheduleConfig("step", milestones=(1, 2)),
        ScheduleConfig("exponential", gamma=0.9, every_epochs=2.5, warmup_epochs=5),
        ScheduleConfig("constant"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_shortened_schedule_is_the_same_in_less_time(config, share):
    for epoch in np.linspace(0.1, 99.7, 23):
        before = learning_rate(config, 0.1, epoch, 100)
        assert learning_rate(shortened(config, 100, share), 0.1, share * epoch, share * 100) == pytest.approx(before)


def test_constant():
    assert rates(ScheduleConfig("constant", warmup_epochs=4), [1, 2, 4, 8]) == pytest.approx([0.025, 0.05, 0.1, 0.1])


@pytest.mark.parametrize(
    "options", [{"name": "linear"}, {"warmup_epochs": -1}, {"gamma": 0}, {"every_epochs": 0}, {"final_lr": -1}]
)
def test_bad_schedules_are_said_when_they_are_made(options):
    with pytest.raises(TrainingError, match=f"ScheduleConfig: {next(iter(options))} must be"):
        ScheduleConfig(**options)


def test_the_loop_follows_the_schedule(tmp_path):
    schedule = ScheduleConfig("cosine", final_lr=0.0, warmup_epochs=0.5)
    trained(supernet_of(), tmp_path, epochs=1, lr=0.1, schedule=schedule)  # 8 steps
    logged = [line["lr"] for line in log_of(tmp_path)]
    # four steps up by 0.025, then 0.05 * (1 + cos(pi * k / 4))
    half = 0.5**0.5
    assert logged == pytest.approx(
        [0, 0.025, 0.05, 0.075, 0.1, 0.05 * (1 + half), 0.05, 0.05 * (1 - half)],
    )
