"""Gradient checkpointing that is not reentrant: a supernet learns the same with it, and keeps less in memory."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from cafenet.supernet.sharing import LocallyFree
from tests.helpers.small_training import assert_same_state, batch, built, data, supernet_of, trained


class Blocks(nn.Module):
    """A stem and two blocks with batch norm, dropout and a depthwise convolution, computed again or not."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 12, 1, bias=False),
                nn.BatchNorm2d(12),
                nn.ReLU(),
                nn.Conv2d(12, 12, 3, padding=1, groups=12),
                nn.Dropout(0.2),
                nn.Conv2d(12, 8, 1),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.again else block(x))
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("r", [0, 1])
def test_a_training_ends_with_the_same_weights_and_statistics(r):
    """Statistics are those of one forward, as without checkpointing; plain PyTorch counts a recomputed one twice."""
    states = [
        trained(supernet_of(built(Blocks, again=again), LocallyFree(r)), data=data(32), epochs=2)
        for again in (True, False)
    ]
    assert_same_state(*states)
    moved = states[0].model.blocks[0][0].weight - built(Blocks, again=True).blocks[0][0].weight
    assert moved.abs().max() > 1e-3


def test_gradients_in_the_users_own_loop_at_every_width():
    left, right = (supernet_of(built(Blocks, again=again), LocallyFree(0)) for again in (True, False))
    widths = set()
    for number in range(6):
        for supernet in (left, right):
            torch.manual_seed(number)
            step = supernet.step(batch(8, number), functional.cross_entropy)
            step.loss.backward()
        widths.add(tuple(step.pick.bin_counts))
    assert len(widths) > 3
    gradients = [[parameter.grad for parameter in supernet.parameters()] for supernet in (left, right)]
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def kept_bytes(model, inputs) -> int:
    """Bytes that a forward keeps for its backward pass, each storage once, without those of parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    found: dict[int, int] = {}
    kept = []

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)  # or its memory could be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(inputs)
    del output
    return sum(found.values())


def test_memory_of_a_step():
    """At full width a supernet keeps what plain training keeps, and slices of weights beside it; less if it computes
    blocks again."""
    images = torch.randn(64, 3, 16, 16)
    plain = kept_bytes(built(Blocks, again=False).train(), images)
    supernets = [supernet_of(built(Blocks, again=again), LocallyFree(0)) for again in (False, True)]

    def full(supernet):
        return lambda inputs: supernet._run(inputs, supernet.full_cuts())

    whole, again = (kept_bytes(_Called(supernet, full(supernet)), images) for supernet in supernets)
    assert plain <= whole <= 1.05 * plain
    assert again < 0.5 * whole


class _Called(nn.Module):
    """A function with the parameters of a supernet."""

    def __init__(self, supernet, function) -> None:
        super().__init__()
        self.supernet, self.function = supernet, function

    def forward(self, inputs):
        return self.function(inputs)


def test_nothing_is_left_behind():
    from torch.utils import checkpoint as checkpointing

    before = checkpointing._checkpoint_without_reentrant_generator
    supernet = supernet_of(built(Blocks, again=True), LocallyFree(0))
    supernet.step(batch(8), functional.cross_entropy).loss.backward()
    assert checkpointing._checkpoint_without_reentrant_generator is before
    assert {name: tuple(each.shape) for name, each in supernet.model.named_parameters()} == {
        name: tuple(each.shape) for name, each in built(Blocks, again=True).named_parameters()
    }
    assert supernet.model.blocks[0][3].groups == 12
