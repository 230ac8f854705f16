"""The same loop under torchrun: who we are, averages over processes, gradients reduced by hand.

DDP's hooks do not see a functional call, so gradients are averaged after the backward pass, in one flat buffer.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Average the gradients in place; what had none anywhere keeps none."""
        if self.size == 1:
            return
        owners = [parameter for parameter in parameters if parameter.grad is not None]
        self._average([parameter.grad for parameter in owners if parameter.grad is not None])

    @torch.no_grad()
    def average_buffers(self, buffers: Iterable[Tensor]) -> None:
        """Average statistics such as batch norm's, so that a checkpoint does not depend on who writes it."""
        if self.size > 1:
            self._average([buffer for buffer in buffers if buffer.is_floating_point()])

    def _average(self, tensors: list[Tensor]) -> None:
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def barrier(self) -> None:
        """Wait for all."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def processes() -> Iterator[Processes]:
    """This process's place: an existing process group, the one torchrun describes, or just one process."""
    if dist.is_available() and dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        try:
            yield Processes(dist.get_rank(), dist.get_world_size())
        finally:
            dist.destroy_process_group()
    else:
        yield Processes()
