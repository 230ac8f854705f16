"""The same loop under torchrun: who we are, averages over processes, gradients reduced by hand.

DDP's hooks do not see a functional call, so gradients are averaged after the backward pass, in one flat buffer.
"""

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among all of them; one process is the ordinary case."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """The average over processes, the same on all of them."""
        if self.size == 1:
            return values
        total = values.to("cuda" if "nccl" in dist.get_backend() else "cpu", copy=True)
        dist.all_reduce(total)
        return (total / self.size).to(values.device)

    def any(self, flag: bool) -> bool:
        """Whether it is so in some process, so that all of them do the same."""
        return bool(self.mean(torch.tensor(float(flag))) > 0)

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def of_first(self, value: Any) -> Any:
        """The first process's value, on all of them."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    @torch.no_grad()
    def average(self, tensors: Iterable[Tensor | None]) -> None:
        """Average tensors in place, all in one exchange; those that are missing (everywhere) are left out."""
        present = [tensor for tensor in tensors if tensor is not None]
        if self.size == 1 or not present:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in present])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(present, flat.split([tensor.numel() for tensor in present]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def barrier(self) -> None:
        """Wait for all."""
        if self.size > 1:
            dist.barrier()


def processes() -> Processes:
    """This process's place: in an existing process group, in the one torchrun describes, or alone."""
    if not dist.is_available():
        return Processes()
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return Processes()
        # For good: out of one torchrun's store a group cannot be made a second time, for a second training, say.
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    return Processes(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
