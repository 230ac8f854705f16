"""A supernet whose widths learn from the full network that it begins with."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import cafenet
from cafenet.errors import CheckpointError, TrainingError
from cafenet.supernet import trainer
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.train import of_one_width, train_supernet
from cafenet.training.distillation import Distillation, DistillConfig, Teacher
from tests.helpers.small_training import (
    WithoutNorm,
    assert_same_state,
    batch,
    built,
    config,
    data,
    log_of,
    sampling,
    supernet_of,
    traced,
    trained,
)

ONLY_THE_TEACHER = DistillConfig(weight=1.0, temperature=2.0)


def test_the_teacher_is_the_network_that_the_supernet_begins_with(tmp_path):
    """The full width alone: what it is to learn is what it says already."""
    model = built(WithoutNorm)
    trained(of_one_width(model, traced(model)), tmp_path, distill=ONLY_THE_TEACHER)
    assert max(abs(line["loss"]) for line in log_of(tmp_path)) < 1e-6


def test_narrow_widths_are_pulled_to_it(tmp_path):
    model, own = built(WithoutNorm), supernet_of(built(WithoutNorm), LocallyFree(0))
    images, _ = batch(8)
    trained(supernet_of(model, LocallyFree(0)), tmp_path, data=data(8), distill=ONLY_THE_TEACHER, max_steps=1)
    with torch.no_grad():
        narrow, full = own(images, own.binned.leftmost(own.sample())), model(images)
        own_log, other = functional.log_softmax(narrow / 2, 1), functional.softmax(full / 2, 1)
        expected = 4 * functional.kl_div(own_log, other, reduction="batchmean")
    assert expected > 5e-5
    assert log_of(tmp_path)[0]["loss"] == pytest.approx(float(expected), rel=0.02)


def test_a_network_trained_first_is_the_teacher(monkeypatch):
    """And it has itself no teacher."""
    teachers = []

    def noted(model, device):
        teachers.append(built())
        teachers[-1].load_state_dict(model.state_dict())
        return Teacher(model, device)

    monkeypatch.setattr(trainer, "Teacher", noted)
    first = supernet_of()
    train_supernet(first, data(), config(epochs=4), sampling=sampling(full_share=0.25), max_steps=8, quiet=True)
    distilled = sampling(full_share=0.25, distill=DistillConfig())
    train_supernet(supernet_of(), data(), config(epochs=4), sampling=distilled, quiet=True)
    (teacher,) = teachers
    assert_same_state(teacher, first.model)


def test_another_teacher_may_be_given(tmp_path):
    class Sure(nn.Module):
        def forward(self, images):
            return torch.tensor([[0.0, 50.0, 0.0, 0.0]]).expand(len(images), -1)

    supernet = supernet_of()
    widths = sampling(distill=DistillConfig(weight=1.0, temperature=1.0))
    train_supernet(supernet, data(), config(epochs=8), sampling=widths, teacher=Sure(), quiet=True)
    assert supernet.eval()(batch()[0]).argmax(1).tolist() == [1] * 16


@pytest.mark.parametrize("full_share", [0.0, 0.25])
def test_an_interrupted_training_ends_as_one_that_was_not(full_share, tmp_path):
    """Its teacher is the same as before, not the half-trained supernet."""
    options = {"epochs": 4, "full_share": full_share, "distill": DistillConfig()}
    whole, same = trained(supernet_of(), **options), supernet_of()
    for stop in (5, 20):
        trained(supernet_of(), tmp_path / "again", max_steps=stop, **options)
        trained(same, tmp_path / "same", max_steps=stop, **options)
    assert_same_state(trained(supernet_of(), tmp_path / "again", **options).model, whole.model)
    assert_same_state(trained(same, tmp_path / "same", **options).model, whole.model)


@pytest.mark.parametrize("other", [None, DistillConfig(weight=0.9)])
def test_a_training_with_other_distillation_is_not_continued(other, tmp_path):
    trained(supernet_of(), tmp_path, max_steps=2, distill=DistillConfig())
    with pytest.raises(CheckpointError, match="loss was 'distillation of cross_entropy"):
        trained(supernet_of(), tmp_path, distill=other)


def test_several_outputs_cannot_be_distilled():
    class Two(WithoutNorm):
        def forward(self, x):
            out = super().forward(x)
            return out, out

    def loss(output, target):
        return functional.cross_entropy(output[0], target)

    with pytest.raises(TrainingError, match="distillation needs a model with one output tensor, but got tuple"):
        trained(supernet_of(built(Two)), loss=loss, distill=DistillConfig())


def test_distillation_without_a_teacher():
    with pytest.raises(TrainingError, match="distillation needs a teacher, but there is none"):
        cafenet.train_model(built(), torch.zeros(1, 3, 4, 4), data(), config(), distill=DistillConfig(), quiet=True)


def test_a_teacher_that_nothing_is_learned_from():
    with pytest.raises(TrainingError, match=r"learned from with SamplingConfig\(distill=...\), but that is None"):
        train_supernet(supernet_of(), data(), config(), sampling=sampling(), teacher=built(), quiet=True)


def test_dense_outputs_count_every_place_alike():
    """Twice as many places with the same scores make the same distance."""
    loss = Distillation("cross_entropy", ONLY_THE_TEACHER)
    output, taught = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 3, 4)
    labels = torch.zeros(2, 4, dtype=torch.int64)
    wide = [torch.cat([each, each], dim=-1) for each in (output, taught, labels)]
    torch.testing.assert_close(loss(wide[0], (wide[1], wide[2])), loss(output, (taught, labels)))


@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_one_score_is_no_class_score(shape):
    loss = Distillation(lambda output, target: output.sum(), ONLY_THE_TEACHER)
    with pytest.raises(TrainingError, match="two classes or more"):
        loss(torch.zeros(shape), (torch.zeros(shape), None))


def test_two_losses_of_the_users_own_are_told_apart(tmp_path):
    def one(output, target):
        return functional.cross_entropy(output, target)

    def other(output, target):
        return 2 * functional.cross_entropy(output, target)

    trained(supernet_of(), tmp_path, loss=one, max_steps=2, distill=DistillConfig())
    with pytest.raises(CheckpointError, match="loss was 'distillation of one"):
        trained(supernet_of(), tmp_path, loss=other, distill=DistillConfig())
