"""What the loops of other libraries refuse, in one line and before a training begins."""

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TrainingError
from tests.helpers.small_training import built
from tests.integrations import loops

IMAGES = torch.zeros(1, 3, 4, 4)


def test_a_lightning_module_whose_forward_is_not_the_model():
    lightning = pytest.importorskip("lightning.pytorch")
    from cafenet.integrations.lightning import SupernetModule

    class Without(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = built()

    class OfLoss(Without):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x).logsumexp(1).mean()

    with pytest.raises(TrainingError, match=r"forward of a LightningModule must be the model, but Without has none"):
        SupernetModule(Without(), IMAGES)
    module = OfLoss()
    with pytest.raises(TrainingError, match=r"that of OfLoss returns one number"):
        SupernetModule(module, IMAGES)
    assert module.training  # as it was
    with pytest.raises(TrainingError, match=r"Plain is no LightningModule, so its optimiser must be given"):
        SupernetModule(built(), IMAGES)


def test_a_lightning_module_is_trained_by_its_own_optimisers():
    lightning = pytest.importorskip("lightning.pytorch")
    from cafenet.integrations.lightning import SupernetModule

    class Mine(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = built()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            assert self.trainer.max_epochs == 1
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    mine = Mine()
    module = SupernetModule(mine, IMAGES, budget="50%")
    before = [parameter.detach().clone() for parameter in mine.parameters()]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(8, 3, 4, 4), torch.arange(8) % 4), batch_size=4
    )
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **options).fit(module, loader)
    assert all(torch.equal(now, then) for now, then in zip(mine.parameters(), before, strict=True))
    moved = zip(module.supernet.parameters(), before, strict=True)
    assert not any(torch.equal(now, then) for now, then in moved)
    assert module(IMAGES).shape == (1, 4)


def test_a_trainer_of_no_supernet_or_with_gradient_checkpointing(tmp_path):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from cafenet.integrations.trainer import SupernetTrainer

    args = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, gradient_checkpointing=True)
    supernet = cafenet.Supernet(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 6))
    with pytest.raises(TrainingError, match="a Trainer cannot switch on gradient checkpointing of a supernet"):
        SupernetTrainer(supernet, args)
    with pytest.raises(TrainingError, match="trains a supernet, but got Linear"):
        SupernetTrainer(nn.Linear(2, 2), args)


def test_a_model_with_gradient_checkpointing_of_its_own_trains_to_the_same_choices_and_weights(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    plain, saving = loops.texts(), loops.texts()
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")  # the first since transformers 5
    enable = next(each for name in names if (each := getattr(saving.supernet.model, name, None)))
    enable({"use_reentrant": False})
    assert any(getattr(each, "gradient_checkpointing", False) for each in saving.supernet.modules())
    for trace, place in ((plain, "plain"), (saving, "saving")):
        loops.trainer_loop(trace, tmp_path / place, stop_at=2)
    assert saving.choices == plain.choices
    assert all(torch.equal(value, saving.weights()[name]) for name, value in plain.weights().items())


class OwnError(Exception):
    """What a user's callback raises."""


def test_a_lightning_callback_that_raises_ends_the_training_and_leaves_the_supernet_whole(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Raising(lightning.Callback):
        def on_before_optimizer_step(self, trainer, *_) -> None:
            if trainer.global_step == 2:
                raise OwnError

    trace = loops.images()
    with pytest.raises(OwnError):
        loops.lightning_loop(trace, tmp_path, callbacks=[Raising()])
    assert len(trace.choices) == 3
    still_trains(trace)


def test_a_callback_of_a_trainer_that_raises_ends_the_training_and_leaves_the_supernet_whole(tmp_path):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from cafenet.integrations.trainer import SupernetTrainer

    class Raising(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_) -> None:
            if state.global_step == 2:
                raise OwnError

    trace = loops.texts()
    args = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = SupernetTrainer(trace.supernet, args, train_dataset=loops.Texts(), callbacks=[Raising()])
    with pytest.raises(OwnError):
        trainer.train()
    assert len(trace.choices) == 2


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_loss_that_raises_in_a_trial_or_in_the_training_pass_leaves_the_supernet_whole(number):
    """With three candidates, the fourth loss is that of the training pass."""
    trace, batch = loops.images(), loops.shards(1, True)[0][0]
    middle = np.array([3, 3])  # of 6 bins each, so that there are three candidates
    calls = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls.append(output)
        if len(calls) == number:
            raise OwnError
        return nn.functional.cross_entropy(output, target)

    statistics = {name: value.clone() for name, value in trace.supernet.model.named_buffers()}
    with pytest.raises(OwnError):
        trace.supernet.step(batch, loss, bin_counts=middle)
    if number < 4:
        now = dict(trace.supernet.model.named_buffers())
        assert all(torch.equal(value, now[name]) for name, value in statistics.items())
    still_trains(trace)


def still_trains(trace: loops.Trace) -> None:
    """The model has its full weights, and steps go on."""
    sizes = {name: value.shape for name, value in loops.images().supernet.model.named_parameters()}
    assert {name: value.shape for name, value in trace.supernet.model.named_parameters()} == sizes
    trace.supernet.step(loops.shards(1, True)[0][0], "cross_entropy").loss.backward()
    assert torch.isfinite(trace.supernet.model(loops.DATA[0][0][None])).all()


def test_tied_weights_are_saved_once_and_read_back(tmp_path):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from cafenet.integrations.trainer import SupernetTrainer

    config = transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=12)
    rows = torch.randint(0, 20, (8, 12))
    data = [{"input_ids": row, "labels": row} for row in rows]
    options = {"max_steps": 2, "save_steps": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    args = transformers.TrainingArguments(str(tmp_path), per_device_train_batch_size=4, **options)

    def supernet() -> cafenet.Supernet:
        torch.manual_seed(0)
        return cafenet.Supernet(transformers.GPT2LMHeadModel(config), {"input_ids": rows[:1]}, budget="80%")

    first, second = supernet(), supernet()
    SupernetTrainer(first, args, train_dataset=data).train()
    SupernetTrainer(second, args, train_dataset=data).train(resume_from_checkpoint=True)
    ours, theirs = first.state_dict(), second.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
