"""Training under torchrun: the rank of this process, averages over processes, and gradients that are reduced by
hand.

DDP's hooks do not see a functional call, so gradients are averaged after the backward pass, in one flat buffer.
"""

import atexit
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from cafenet.errors import CafeNetError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """This process among all processes of a training. A single process is the usual case."""

    rank: int = 0
    """Number of this process, from 0."""
    size: int = 1
    """Number of processes."""

    @property
    def is_first(self) -> bool:
        """Whether this process has rank 0."""
        return self.rank == 0

    @property
    def writes(self) -> bool:
        """Whether this process writes what its host keeps: the first one of each host, as torchrun tells."""
        return self.is_first or (self.size > 1 and os.environ.get("LOCAL_RANK") == "0")

    def mean(self, values: Tensor) -> Tensor:
        """Averages values over all processes.

        Args:
            values: Values of this process, with the same shape in every process.

        Returns:
            The average, which is the same in every process.
        """
        if self.size == 1:
            return values
        total = values.to("cuda" if "nccl" in dist.get_backend() else "cpu", copy=True)
        dist.all_reduce(total)
        return (total / self.size).to(values.device)

    def any(self, flag: bool) -> bool:
        """Computes the logical OR of a flag over all processes.

        Args:
            flag: Flag of this process.

        Returns:
            True if the flag is true in at least one process.
        """
        return bool(self.mean(torch.tensor(float(flag))) > 0)

    def gather(self, value: Any) -> list[Any]:
        """Collects a value from every process.

        Args:
            value: Value of this process.

        Returns:
            The values of all processes, by rank.
        """
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def of_first(self, value: Any) -> Any:
        """Sends the first process's value to all processes.

        Args:
            value: Value of this process, which counts only in the first one.

        Returns:
            The value of the first process.
        """
        return self.of(0, value)

    def of(self, rank: int, value: Any) -> Any:
        """Sends one process's value to all processes.

        Args:
            rank: Number of the process.
            value: Value of this process, which counts only in that one.

        Returns:
            The value of that process.
        """
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=rank)
        return values[0]

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Does work in the first process alone, and sends its result to all.

        Args:
            work: Function that is called in the first process.

        Returns:
            Its result.

        Raises:
            CafeNetError: If the work ends in one: in every process, so that none of them waits for the others.
        """
        result, problem = None, None
        if self.is_first:
            try:
                result = work()
            except CafeNetError as error:
                if self.size == 1:
                    raise
                problem = error
        result, problem = self.of_first((result, problem))
        if problem is not None:
            raise problem
        return cast(Result, result)

    @torch.no_grad()
    def average(self, tensors: Iterable[Tensor | None]) -> None:
        """Averages tensors in place over all processes, in one exchange.

        Args:
            tensors: Tensors of this process. A None, which must be None in every process, is left out.
        """
        present = [tensor for tensor in tensors if tensor is not None]
        if self.size == 1 or not present:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in present])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(present, flat.split([tensor.numel() for tensor in present]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def barrier(self) -> None:
        """Waits until every process has arrived here."""
        if self.size > 1:
            dist.barrier()


def processes() -> Processes:
    """Finds this process's place: in an existing process group, in the one that torchrun describes, or alone.

    Returns:
        This process among all processes.
    """
    if not dist.is_available():
        return Processes()
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return Processes()
        # The group lasts until the process ends: torchrun's store does not allow a second group for a second training.
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    return Processes(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
