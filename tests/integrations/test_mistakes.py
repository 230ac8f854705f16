"""What the loops of other libraries refuse, in one line and before a training begins."""

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TrainingError
from tests.helpers.small_training import built

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
    with pytest.raises(TrainingError, match="cannot be trained with gradient checkpointing"):
        SupernetTrainer(supernet, args)
    with pytest.raises(TrainingError, match="trains a supernet, but got Linear"):
        SupernetTrainer(nn.Linear(2, 2), args)


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
