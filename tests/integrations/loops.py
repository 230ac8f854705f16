"""The same training of a small supernet in loops of several kinds, each noting its choices and its weights.

A step is a list of batches, one for each process; one process accumulates what several processes would do at once.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

import cafenet
from cafenet.space.bins import uniform_bins
from cafenet.supernet.candidate_choice import Exact
from cafenet.supernet.exchange import joined
from cafenet.supernet.sharing import LocallyFree
from tests.helpers.small_training import built, data

BATCH_SIZE, NUM_EXAMPLES, EPOCHS, LR = 8, 64, 2, 0.05
DATA = data(NUM_EXAMPLES)


@dataclass
class Trace:
    """What a training did."""

    supernet: cafenet.Supernet
    choices: list[tuple[list[int], int]] = field(default_factory=list)

    def weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.supernet.model.named_parameters()}

    def save(self, place: Path) -> None:
        torch.save({"weights": self.weights(), "choices": self.choices}, place)


def noted(model: nn.Module, inputs: Any, seed: int = 0) -> Trace:
    """A supernet with three candidates for most widths, whose choices are noted."""
    space = cafenet.trace(model, inputs)
    bins = uniform_bins(space, 6)
    trace = Trace(cafenet.Supernet(model, space, bins, LocallyFree(1), budget="50%", choice=Exact(), seed=seed))
    pick = trace.supernet.pick

    def noting(*args: Any, **options: Any) -> Any:
        picked = pick(*args, **options)
        trace.choices.append((picked.bin_counts.tolist(), picked.candidate))
        return picked

    trace.supernet.pick = noting  # type: ignore[method-assign]
    trace.supernet.train()
    return trace


def images(seed: int = 0) -> Trace:
    return noted(built(dropout=0.0), DATA[0][0][None], seed)


def shards(num_processes: int, interleaved: bool, examples: Dataset[Any] = DATA) -> list[list[Any]]:
    """The batches of every step: process r reads the examples r, r + n, ... or every n-th batch."""
    steps = []
    for start in range(0, NUM_EXAMPLES, BATCH_SIZE * num_processes):
        block = range(start, start + BATCH_SIZE * num_processes)
        parts = [
            block[rank::num_processes] if interleaved else block[rank * BATCH_SIZE : (rank + 1) * BATCH_SIZE]
            for rank in range(num_processes)
        ]
        steps.append([torch.utils.data.default_collate([examples[i] for i in part]) for part in parts])
    return steps


def own_loop(
    trace: Trace, steps: Iterable[list[Any]], loss_fn: Any = functional.cross_entropy, bf16: bool = False
) -> Trace:
    """Our own loop, in one process."""
    supernet = trace.supernet
    optimizer = torch.optim.SGD(supernet.parameters(), lr=LR)
    for _ in range(EPOCHS):
        for batches in steps:
            with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                pick = supernet.pick(batches, loss_fn)
                losses = [supernet.loss(batch, pick, loss_fn) for batch in batches]
            (torch.stack(losses).sum() / len(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace


def plain_loop(trace: Trace, rank: int, steps: list[list[Any]]) -> Trace:
    """A loop of a user's own under torchrun, without anything for several processes."""
    optimizer = torch.optim.SGD(trace.supernet.parameters(), lr=LR)
    for _ in range(EPOCHS):
        for batches in steps:
            trace.supernet.step(batches[rank], "cross_entropy").loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace


def lightning_loop(
    trace: Trace, place: Path, epochs: int = EPOCHS, resume: Path | str | None = None, **options: Any
) -> Trace:
    import lightning.pytorch as lightning

    from cafenet.integrations.lightning import SupernetModule

    module = SupernetModule(built(), DATA[0][0][None], optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LR))
    module.supernet = trace.supernet
    team = joined()
    sampler = DistributedSampler(DATA, team.size, team.rank, shuffle=False)  # Lightning's own would shuffle
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=epochs, use_distributed_sampler=False, accelerator="cpu", logger=False, **(quiet | options)
    )
    trainer.fit(module, DataLoader(DATA, batch_size=BATCH_SIZE, sampler=sampler), ckpt_path=resume)
    trainer.save_checkpoint(place / "lightning.ckpt")
    return trace


def accelerate_loop(
    trace: Trace, place: Path, epochs: int = EPOCHS, resume: Path | None = None, **options: Any
) -> Trace:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # the precision of an earlier loop in this process
    accelerator = Accelerator(cpu=True, **options)
    supernet, optimizer = trace.supernet, torch.optim.SGD(trace.supernet.parameters(), lr=LR)
    loader = DataLoader(DATA, batch_size=BATCH_SIZE)
    _, optimizer, loader = accelerator.prepare(supernet, optimizer, loader)
    if resume is not None:
        accelerator.load_state(str(resume))
    for _ in range(epochs):
        for batch in loader:
            step = supernet.step(batch, "cross_entropy")
            accelerator.backward(step.loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.save_state(str(place / "accelerate"))
    return trace


class Texts(Dataset[dict[str, Tensor]]):
    """Rows of tokens with the class of their first token."""

    def __init__(self) -> None:
        self.rows = torch.randint(0, 20, (NUM_EXAMPLES, 12), generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return NUM_EXAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index, 0] % 3}


def texts(seed: int = 0) -> Trace:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return noted(BertForSequenceClassification(config), {"input_ids": Texts()[0]["input_ids"][None]}, seed)


def trainer_loop(trace: Trace, place: Path, resume: bool = False, stop_at: int = -1, **options: Any) -> Trace:
    from accelerate.state import AcceleratorState
    from transformers import TrainingArguments

    from cafenet.integrations.trainer import SupernetTrainer

    class InOrder(SupernetTrainer):
        def _get_train_sampler(self, *args: Any) -> SequentialSampler:
            return SequentialSampler(Texts())

    AcceleratorState._reset_state()
    args = TrainingArguments(
        str(place / "trainer"),
        num_train_epochs=EPOCHS,
        max_steps=stop_at,
        per_device_train_batch_size=BATCH_SIZE,
        max_grad_norm=0.0,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **({"save_steps": 4} | options),
    )
    optimizer = torch.optim.SGD(trace.supernet.parameters(), lr=LR)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = InOrder(trace.supernet, args, train_dataset=Texts(), optimizers=(optimizer, constant))
    trainer.train(resume_from_checkpoint=resume or None)
    return trace
