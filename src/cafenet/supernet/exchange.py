"""The exchange between processes that train one supernet: trial losses, gradients and batch-norm statistics.

Gradients are averaged by a callback at the end of the backward pass, so that `loss.backward()` is all that a training
loop does, also inside the loops of other libraries. A supernet that is wrapped in `DistributedDataParallel` and called
through it has its gradients averaged there, and only statistics are left to do here.
"""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cafenet.training.process_group import Processes

if TYPE_CHECKING:
    from cafenet.supernet.supernet import Supernet


class Exchange:
    """The exchange between the processes that train a supernet together; with one process it does nothing."""

    def __init__(self) -> None:
        self.is_manual = False
        """True while a training loop averages gradients and statistics itself."""
        self._has_begun = False

    def mean(self, losses: Tensor) -> Tensor:
        """Average trial losses over all processes, so that all of them make the same choice.

        Args:
            losses: Losses of this process.

        Returns:
            The averages.
        """
        return joined().mean(losses)

    def begin(self, supernet: "Supernet") -> None:
        """Let all processes begin with the weights and the samples of the first one; later calls do nothing.

        Args:
            supernet: The supernet.
        """
        team = joined()
        if self._has_begun or self.is_manual:
            return
        self._has_begun = True
        if team.size > 1:
            for tensor in [*supernet.parameters(), *supernet.buffers()]:
                dist.broadcast(tensor.detach(), src=0)
            supernet.generator.set_state(team.of_first(supernet.generator.get_state()))

    def after_backward(self, supernet: "Supernet", loss: Tensor) -> None:
        """Average gradients and batch-norm statistics once the backward pass of a loss has ended.

        Args:
            supernet: The supernet.
            loss: The loss of a step, with its graph.
        """
        team = joined()
        if team.size == 1 or self.is_manual or not loss.requires_grad:
            return
        parameters = [] if _is_inside_ddp() else [each for each in supernet.parameters() if each.requires_grad]
        statistics = [buffer for buffer in supernet.buffers() if buffer.is_floating_point()]

        def average() -> None:
            team.average([*(parameter.grad for parameter in parameters), *statistics])

        def at_the_end(gradient: Tensor) -> None:
            torch.autograd.Variable._execution_engine.queue_callback(average)

        loss.register_hook(at_the_end)


def joined() -> Processes:
    """Return this process among those of the process group, or alone if nobody has made a group.

    Returns:
        The place of this process.
    """
    if not dist.is_available() or not dist.is_initialized():
        return Processes()
    return Processes(dist.get_rank(), dist.get_world_size())


def _is_inside_ddp() -> bool:
    """Return whether the forward of a `DistributedDataParallel` is running, whose backward averages gradients.

    Gradients that are averaged twice are right, too, so an answer of no is always safe.
    """
    active = getattr(DistributedDataParallel, "_get_active_ddp_module", None)
    return active is not None and active() is not None
