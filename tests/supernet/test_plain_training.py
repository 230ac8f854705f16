"""Training of one model is plain training, step for step; distillation is its formula; fresh weights are fresh."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import cafenet
from cafenet.errors import CheckpointError, TrainingError
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.training.data_sketch import NUM_EXAMPLES
from cafenet.training.distillation import Distillation, DistillConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig
from tests.helpers.small_training import (
    NUM_CLASSES,
    Plain,
    WithoutNorm,
    assert_same_state,
    batch,
    built,
    config,
    data,
    log_of,
)

EXAMPLE = torch.zeros(1, 3, 4, 4)
COSINE = ScheduleConfig("cosine", final_lr=0.001)


def train(model: nn.Module, examples=None, directory: Path | None = None, **options) -> nn.Module:
    """Two epochs of 7 steps of 8 examples (of 60, so that 4 are left over), cosine from 0.05."""
    call = {name: options.pop(name) for name in ("loss", "teacher", "distill") if name in options}
    settings = config(**{"epochs": 2, "schedule": COSINE, "seed": 3, "checkpoint_every": 3, **options})
    examples = data(60) if examples is None else examples
    return train_model(model, EXAMPLE, examples, settings, directory=directory, quiet=True, **call)


def reference(model: nn.Module, loss=functional.cross_entropy, weight_decay: float = 1e-4) -> list[float]:
    """The same by hand, in place; returns the losses."""
    images, labels = batch(60)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=weight_decay)
    torch.manual_seed(3)
    losses = []
    model.train()
    for epoch in range(2):
        order = np.random.default_rng((3, epoch)).permutation(60)
        for number in range(7):
            share = (epoch * 7 + number) / 14
            optimizer.param_groups[0]["lr"] = 0.001 + 0.049 * (1 + math.cos(math.pi * share)) / 2
            picked = order[8 * number : 8 * number + 8]
            value = loss(model(images[picked]), labels[picked])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            losses.append(value.item())
    return losses


class Noted(Dataset):
    """The examples of `data(60)`; reading one of them for the n-th time may end in Ctrl-C."""

    def __init__(self, at: int | None = None) -> None:
        self.examples, self.at, self.num_reads = data(60), at, 0

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int):
        self.num_reads += 1
        if self.num_reads == self.at:
            raise KeyboardInterrupt
        return self.examples[index]


@pytest.mark.parametrize("kind", [Plain, WithoutNorm])
def test_equals_a_plain_loop(kind, tmp_path):
    """Batch norm, dropout, momentum, weight decay and the schedule included, bit for bit."""
    trained, by_hand = train(built(kind), directory=tmp_path), built(kind)
    losses = reference(by_hand)
    assert [line["loss"] for line in log_of(tmp_path)] == losses
    assert_same_state(trained, by_hand)


def test_a_slim_model_is_trained_as_any_other():
    space = cafenet.trace(built(), EXAMPLE)
    by_hand = space.extract([3, 5])
    trained = train(space.extract([3, 5]))
    reference(by_hand)
    assert_same_state(trained, by_hand)
    assert trained.two.weight.shape == (5, 3, 3, 3)


def test_a_trained_slim_model_can_be_saved(tmp_path):
    model = built()
    trained = train(cafenet.trace(model, EXAMPLE).extract([3, 5]))
    cafenet.save(trained, tmp_path / "slim.pt")
    assert_same_state(cafenet.load(tmp_path / "slim.pt", model), trained)


def test_the_model_itself_is_not_changed():
    model = built().eval()
    model.norm_one.train()
    before = [module.training for module in model.modules()]
    trained = train(model)
    assert_same_state(model, built())
    assert [module.training for module in model.modules()] == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not torch.equal(trained.one.weight, model.one.weight)


def test_options_reach_the_training():
    other = train(built(), optimizer=OptimizerConfig(lr=0.05, weight_decay=0.1))
    by_hand = built()
    reference(by_hand, weight_decay=0.1)
    assert_same_state(other, by_hand)


def test_label_smoothing_reaches_the_loss(tmp_path):
    by_hand = built()
    losses = reference(by_hand, lambda output, target: functional.cross_entropy(output, target, label_smoothing=0.2))
    train(built(), directory=tmp_path, label_smoothing=0.2)
    assert [line["loss"] for line in log_of(tmp_path)] == losses


@pytest.mark.parametrize("stops", [[5], [30, 40], [60, 61, 2]])
def test_resumed_equals_uninterrupted(stops, tmp_path):
    whole = train(built())
    for stop in stops:  # checkpoints come after 3, 6, 9 steps of 8 examples
        with pytest.raises(KeyboardInterrupt):
            train(built(), Noted(stop), tmp_path)
    assert_same_state(train(built(), Noted(), tmp_path), whole)
    assert [line["step"] for line in log_of(tmp_path)] == list(range(1, 15))


def test_a_finished_training_is_not_done_again(tmp_path):
    first, unread = train(built(), directory=tmp_path), Noted()
    assert_same_state(train(built(seed=9), unread, tmp_path), first)
    assert unread.num_reads == 2 * NUM_EXAMPLES  # the sample by which the data are recognised


def test_a_finished_training_with_other_options_is_refused(tmp_path):
    train(built(), directory=tmp_path)
    with pytest.raises(CheckpointError, match=r"config.epochs was 2, is 3"):
        train(built(), directory=tmp_path, epochs=3)


def test_class_scores_are_distilled_by_the_formula():
    """Logits (0, 2 ln 3) are (1/10, 9/10), and at temperature 2 (1/4, 3/4); the teacher has (1/2, 1/2).

    KL(teacher, student) = ln(2) / 2 + ln(2/3) / 2 = ln(4/3) / 2, times 2^2; of the second example it is 0.
    """
    outputs, inputs = torch.tensor([[0.0, 2 * math.log(3)], [1.0, 1.0]]), torch.zeros(2, 2)
    loss = Distillation("cross_entropy", DistillConfig(weight=0.25, temperature=2.0))
    labels = -(math.log(0.9) + math.log(0.5)) / 2
    taught = 4 * math.log(4 / 3) / 2 / 2
    assert float(loss(outputs, (inputs, torch.tensor([1, 0])))) == pytest.approx(0.75 * labels + 0.25 * taught)


def test_attributes_are_distilled_by_the_formula():
    """The output 2 ln 3 is 9/10, and at temperature 2 3/4; the teacher has 1/2: -(ln(3/4) + ln(1/4)) / 2, times 2^2."""
    loss = Distillation("bce", DistillConfig(weight=0.25, temperature=2.0))
    found = loss(torch.tensor([[2 * math.log(3)]]), (torch.zeros(1, 1), torch.ones(1, 1)))
    taught = -4 * (math.log(3 / 4) + math.log(1 / 4)) / 2
    assert float(found) == pytest.approx(-0.75 * math.log(0.9) + 0.25 * taught)


@pytest.mark.parametrize(("loss", "target"), [("cross_entropy", [0]), ("bce", [[1.0, 0.0]])])
def test_the_pull_to_the_teacher_does_not_depend_on_the_temperature(loss, target):
    """That is what the temperature's square is for; it holds for small outputs."""
    pulls = []
    for temperature in (1.0, 8.0):
        output = torch.tensor([[0.01, -0.01]], requires_grad=True)
        config = DistillConfig(weight=1.0, temperature=temperature)
        Distillation(loss, config)(output, (-output.detach(), torch.tensor(target))).backward()
        pulls.append(output.grad)
    torch.testing.assert_close(*pulls, rtol=1e-3, atol=0)


def test_label_smoothing_concerns_the_labels_only():
    outputs, target = torch.tensor([[0.0, 2.0]]), torch.tensor([1])
    plain = Distillation("cross_entropy", DistillConfig(weight=0.5))
    smooth = Distillation("cross_entropy", DistillConfig(weight=0.5), label_smoothing=0.1)
    inputs = torch.zeros(1, 2)
    change = functional.cross_entropy(outputs, target, label_smoothing=0.1) - functional.cross_entropy(outputs, target)
    torch.testing.assert_close(
        smooth(outputs, (inputs, target)) - plain(outputs, (inputs, target)), 0.5 * change, atol=1e-6, rtol=0
    )


def test_a_loss_of_the_users_own_can_be_distilled():
    loss = Distillation(functional.cross_entropy, DistillConfig(weight=1.0, temperature=1.0))
    outputs, inputs = torch.tensor([[0.0, math.log(3)]]), torch.zeros(1, 2)
    assert float(loss(outputs, (inputs, torch.tensor([1])))) == pytest.approx(math.log(4 / 3) / 2)


def test_distillation_equals_a_plain_loop(tmp_path):
    """The teacher is in eval mode and is not changed; its outputs come from the same augmented inputs."""
    teacher, by_hand = built(seed=5).train(), built()
    inputs, labels = batch(60)
    judge = built(seed=5).eval()

    def loss(output: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        with torch.no_grad():
            taught = judge(target[0])
        own = functional.log_softmax(output / 3, dim=1)
        distance = functional.kl_div(own, functional.softmax(taught / 3, dim=1), reduction="batchmean") * 9
        return 0.3 * functional.cross_entropy(output, target[1]) + 0.7 * distance

    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    torch.manual_seed(3)
    losses = []
    for number in range(7):
        picked = np.random.default_rng((3, 0)).permutation(60)[8 * number : 8 * number + 8]
        value = loss(by_hand(inputs[picked]), (inputs[picked], labels[picked]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    options = {"epochs": 1, "schedule": ScheduleConfig("constant"), "distill": DistillConfig(0.7, 3.0)}
    trained = train(built(), directory=tmp_path, teacher=teacher, **options)
    assert [line["loss"] for line in log_of(tmp_path)] == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(trained.one.weight, by_hand.one.weight, atol=1e-5, rtol=0)
    assert_same_state(teacher, built(seed=5))
    assert teacher.training


def test_a_resumed_distillation_equals_an_uninterrupted_one(tmp_path):
    whole = train(built(), teacher=built(seed=5))
    with pytest.raises(KeyboardInterrupt):
        train(built(), Noted(60), tmp_path, teacher=built(seed=5))
    assert_same_state(train(built(), Noted(), tmp_path, teacher=built(seed=5)), whole)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"distill": DistillConfig(0.9)}, "weight=0.5.* is .*weight=0.9"),
        ({"teacher": None}, "loss was 'distillation of cross_entropy.* is 'cross_entropy'"),
        ({"label_smoothing": 0.1}, "smoothing"),
    ],
)
def test_a_distillation_with_other_options_is_not_continued(changed, message, tmp_path):
    train(built(), directory=tmp_path, teacher=built(seed=5))
    with pytest.raises(CheckpointError, match=message):
        train(built(), directory=tmp_path, **{"teacher": built(seed=5), **changed})


@pytest.mark.parametrize(("teacher", "found"), [(nn.Flatten(), "8, 48"), (nn.AdaptiveMaxPool2d(1, True), "tuple")])
def test_a_teacher_with_other_outputs(teacher, found):
    with pytest.raises(TrainingError, match=rf"outputs must have the shape \[8, {NUM_CLASSES}\], but are .*{found}"):
        train(built(), teacher=teacher)


def test_labels_that_do_not_fit_are_said_with_a_teacher_too():
    images, labels = batch(60)
    with pytest.raises(TrainingError, match="labels must lie in 0 to 3"):
        train(built(), TensorDataset(images, labels + 1), teacher=built(seed=5))


@pytest.mark.parametrize("options", [{"weight": 0.0}, {"weight": 1.1}, {"weight": -1.0}, {"temperature": 0.0}])
def test_impossible_distillation(options):
    ((name, value),) = options.items()
    with pytest.raises(TrainingError, match=f"{name} must be .*, but is {value}"):
        DistillConfig(**options)


def test_fresh_weights_depend_on_the_seed_alone():
    """They are what building the network under this seed draws, whatever it learned before."""
    learned = train(built(seed=7))
    state = torch.get_rng_state()
    fresh = initialised(learned, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_state(fresh, built(seed=2))
    assert_same_state(initialised(built(seed=1), 2), fresh)
    assert not torch.equal(initialised(learned, 4).one.weight, fresh.one.weight)
    assert learned.norm_one.num_batches_tracked == 14  # the model itself keeps what it learned


def test_every_layer_draws_anew():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(3))

        def reset_parameters(self) -> None:
            nn.init.normal_(self.scale)

    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.Linear(3, 2), nn.Embedding(4, 3), nn.LSTM(2, 3), nn.PReLU(3), Own())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    fresh = initialised(model, 0)
    assert [name for name, parameter in fresh.named_parameters() if bool((parameter == 7.0).any())] == []
    assert all(bool((parameter == 7.0).all()) for parameter in model.parameters())


class WithToken(nn.Module):
    """A parameter of its own, which no layer draws."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(3, 2)


def test_parameters_that_cannot_be_drawn_anew_are_named():
    with pytest.warns(UserWarning, match="these parameters keep their values: token$"):
        fresh = initialised(WithToken(), 0)
    assert fresh.token.tolist() == [1.0] * 3


def test_attention_is_drawn_anew():
    model = nn.MultiheadAttention(4, 2)
    nn.init.zeros_(model.in_proj_weight)
    assert initialised(model, 0).in_proj_weight.all()


def test_a_model_in_which_nothing_may_vary():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    trained = train_model(model, torch.zeros(1, 3, 4, 4), data(), config(epochs=2, lr=0.1), quiet=True)
    assert not torch.equal(trained[1].weight, model[1].weight)
