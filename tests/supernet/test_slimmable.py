"""With r = 0 the loop is slimmable training: step for step equal to one that slices a small network by hand."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cafenet.supernet.sharing import LocallyFree
from cafenet.training.batch_feed import Feed
from cafenet.training.optimizers import OptimizerConfig
from tests.helpers.small_training import Plain, built, data, log_of, supernet_of, trained

LR, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 1e-3


class ByHand:
    """`Plain` as a dictionary of tensors, leading channels cut out of it by indexing; SGD as its formula."""

    def __init__(self, model: Plain) -> None:
        self.weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
        self.statistics = {name: b.clone() for name, b in model.named_buffers()}
        self.momenta: dict[str, Tensor] = {}

    def forward(self, x: Tensor, one: int, two: int) -> Tensor:
        w = self.weights
        x = self._normalised("norm_one", functional.conv2d(x, w["one.weight"][:one], padding=1), one)
        x = functional.relu(x)
        x = self._normalised("norm_two", functional.conv2d(x, w["two.weight"][:two, :one], padding=1), two)
        x = functional.dropout(functional.relu(x).mean((2, 3)), 0.25)
        return functional.linear(x, w["head.weight"][:, :two], w["head.bias"])

    def _normalised(self, layer: str, x: Tensor, width: int) -> Tensor:
        self.statistics[f"{layer}.num_batches_tracked"] += 1
        return functional.batch_norm(
            x,
            self.statistics[f"{layer}.running_mean"][:width],
            self.statistics[f"{layer}.running_var"][:width],
            self.weights[f"{layer}.weight"][:width],
            self.weights[f"{layer}.bias"][:width],
            training=True,
            momentum=0.1,
        )

    @torch.no_grad()
    def descend(self) -> None:
        for name, weight in self.weights.items():
            gradient = weight.grad.add(weight, alpha=WEIGHT_DECAY)
            self.momenta[name] = self.momenta[name].mul(MOMENTUM).add(gradient) if name in self.momenta else gradient
            weight.add_(self.momenta[name], alpha=-LR)  # one rounding, where `weight -= LR * momentum` has two
            weight.grad = None


def test_equal_to_a_loop_by_hand(tmp_path):
    model = built(Plain)
    optimizer = OptimizerConfig(lr=LR, weight_decay=WEIGHT_DECAY, options={"momentum": MOMENTUM})
    supernet = trained(supernet_of(model, LocallyFree(0)), tmp_path, epochs=2, seed=5, optimizer=optimizer)

    reference, twin = ByHand(model), supernet_of(model, LocallyFree(0))
    feed = Feed(data(), batch_size=8, seed=5)
    losses, widths = [], []
    torch.manual_seed(5)  # of the dropout masks
    for epoch in range(2):
        for ((inputs, target),) in feed.epoch(epoch):
            one, two = twin.sample() * (2, 3)  # bins of 2 and 3 channels
            widths.append((one, two))
            loss = functional.cross_entropy(reference.forward(inputs, one, two), target)
            loss.backward()
            reference.descend()
            losses.append(loss.item())

    assert len(set(widths)) > 8  # of 16 steps
    assert [line["loss"] for line in log_of(tmp_path)] == losses
    for name, weight in reference.weights.items():
        assert torch.equal(supernet.model.get_parameter(name), weight), name
    for name, statistic in reference.statistics.items():
        assert torch.equal(supernet.model.get_buffer(name), statistic), name


@pytest.mark.parametrize("r", [1, 2])
def test_a_free_pattern_is_another_training(r):
    fixed, free = (trained(supernet_of(sharing=LocallyFree(r_))) for r_ in (0, r))
    assert not torch.equal(fixed.model.two.weight, free.model.two.weight)
