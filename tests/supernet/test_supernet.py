"""One step of the supernet: the best candidate is found without a trace, and only its channels are trained."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import cafenet
from cafenet.space.bins import flops_sensitive_bins, uniform_bins
from cafenet.supernet.candidate_choice import Exact, Race
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.supernet.supernet import Supernet
from tests.helpers.small_training import (
    NUM_CLASSES,
    Gated,
    Plain,
    Residual,
    assert_same_state,
    batch,
    built,
    channels_of,
    supernet_of,
    traced,
)

cross_entropy = functional.cross_entropy


def loss_of_slim_model(supernet: Supernet, channels: dict[str, list[int]], inputs, target) -> float:
    """The training loss of a plain, extracted model, with the dropout masks that come next."""
    slim = supernet.space.extract(channels=channels, model=supernet.model).train()
    with torch.random.fork_rng(), torch.no_grad():
        return float(cross_entropy(slim(inputs), target))


def own_candidates(sizes: dict[str, int], bin_counts: dict[str, int], r: int) -> list[dict[str, list[int]]]:
    """The candidates inside the groups, written down independently: base bins and r + 1 of the zone, from bins of one
    size."""
    found = []
    for offsets in itertools.combinations(range(-r, r + 1), r + 1):
        channels = {}
        for name, size in sizes.items():
            bins = [*range(1, bin_counts[name] - r), *(bin_counts[name] + offset for offset in offsets)]
            channels[name] = [channel for b in bins for channel in range((b - 1) * size, b * size)]
        found.append(channels)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("r", "bin_counts", "count"), [(1, (4, 3), 3), (1, (5, 4), 3), (2, (4, 4), 10), (2, (5, 4), 10), (3, (5, 5), 35)]
)
def test_exact_mode_picks_the_true_minimum(seed, r, bin_counts, count):
    # `one` has 8 bins of one channel, `two` 12: taken lies inside both
    supernet = supernet_of(built(seed=seed), LocallyFree(r), Exact(), bins=uniform_bins(traced(built()), 12))
    inputs, target = batch(seed=seed)
    candidates = own_candidates({"one": 1, "two": 1}, {"one": bin_counts[0], "two": bin_counts[1]}, r)
    losses = [loss_of_slim_model(supernet, channels, inputs, target) for channels in candidates]
    pick = supernet.pick([(inputs, target)], cross_entropy, bin_counts=np.array(bin_counts))
    assert pick.num_candidates == len(candidates) == len(set(losses)) == count
    assert pick.trial_losses == pytest.approx(losses, rel=1e-5)
    assert pick.candidate == int(np.argmin(losses))
    (subnet,) = pick.subnets
    assert channels_of(supernet.space, subnet) == candidates[pick.candidate]
    assert supernet.loss((inputs, target), pick, cross_entropy).item() == pytest.approx(min(losses), rel=1e-5)


def test_the_minimum_over_several_micro_batches_is_that_of_their_mean():
    supernet = supernet_of(built(dropout=0.0))
    batches = [batch(seed=1), batch(seed=2)]
    candidates = own_candidates({"one": 2, "two": 3}, {"one": 3, "two": 3}, 1)
    losses = [np.mean([loss_of_slim_model(supernet, channels, *b) for b in batches]) for channels in candidates]
    pick = supernet.pick(batches, cross_entropy, bin_counts=np.array([3, 3]))
    assert pick.trial_losses == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("kind", [Plain, Residual, Gated])
@pytest.mark.parametrize("sharing", [LocallyFree(1), LocallyFree(1, per_group=True), LocallyFree(0)])
def test_channels_that_were_not_chosen_get_no_gradient(kind, sharing):
    supernet = supernet_of(built(kind), sharing)
    for number in range(4):
        supernet.zero_grad()
        step = supernet.step(batch(seed=number), cross_entropy)
        step.loss.backward()
        (subnet,) = step.pick.subnets
        kept = channels_of(supernet.space, subnet)
        parameters = dict(supernet.model.named_parameters())
        assert any(len(channels) < supernet.space.group(name).channels for name, channels in kept.items())
        for group, units in zip(supernet.space.groups, subnet.units, strict=True):
            for slot in group.slots:
                if slot.tensor not in parameters:
                    continue
                mine = supernet.space.layout.patterns[supernet.space.layout.axes[slot.tensor][slot.dim]]
                first = supernet.space.layout.first_units[supernet.space.groups.index(group)]
                dropped = [p for p in slot.positions.tolist() if mine[p] - first not in units]
                gradient = parameters[slot.tensor].grad
                assert (
                    int(gradient.index_select(slot.dim, torch.tensor(dropped, dtype=torch.int64)).count_nonzero()) == 0
                )
        # what was chosen does get one
        assert all(float(parameter.grad.abs().sum()) > 0 for parameter in parameters.values())


@pytest.mark.parametrize("kind", [Plain, Residual])
def test_the_gradient_of_a_narrow_step_is_the_slim_models(kind):
    supernet = supernet_of(built(kind))
    inputs, target = batch()
    pick = supernet.pick([(inputs, target)], cross_entropy, bin_counts=np.array([3, 3]))
    slim = supernet.space.extract(channels=channels_of(supernet.space, pick.subnets[0]), model=supernet.model).train()
    torch.manual_seed(3)
    cross_entropy(slim(inputs), target).backward()
    torch.manual_seed(3)
    supernet.loss((inputs, target), pick, cross_entropy).backward()
    for name, parameter in supernet.model.named_parameters():
        full, small = parameter.grad, slim.get_parameter(name).grad
        assert float(full.double().pow(2).sum()) == pytest.approx(float(small.double().pow(2).sum()), rel=1e-5)
    again = supernet.space.extract(channels=channels_of(supernet.space, pick.subnets[0]), model=supernet.model)
    for name, buffer in slim.named_buffers():
        torch.testing.assert_close(again.get_buffer(name), buffer)


def test_the_users_model_is_never_changed():
    model = built()
    before, mode = copy.deepcopy(model), model.training
    supernet = supernet_of(model)
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.5)
    for number in range(3):
        supernet.step(batch(seed=number), cross_entropy).loss.backward()
        optimizer.step()
    assert_same_state(model, before)
    assert model.training == mode
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not torch.equal(supernet.model.one.weight, model.one.weight)
    assert vars(model.one).keys() == vars(before.one).keys()
    assert model.one.out_channels == 8


@pytest.mark.parametrize("choice", [Exact(), Race(chunk=0.25, min_examples=4)])
@pytest.mark.parametrize("kind", [Plain, Residual])
def test_trial_passes_leave_no_trace(choice, kind):
    supernet = supernet_of(built(kind), choice=choice)
    before = copy.deepcopy(supernet.model)
    state = torch.get_rng_state()
    pick = supernet.pick([batch(32)], cross_entropy, bin_counts=np.array([3, 3]))
    assert pick.trial_losses
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_state(supernet.model, before)
    assert all(parameter.grad is None for parameter in supernet.parameters())
    assert supernet.model.training
    assert supernet.trial_losses(batch(32), supernet.candidates(np.array([3, 3])), cross_entropy)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_state(supernet.model, before)


def test_a_trial_that_fails_leaves_no_trace_either():
    supernet = supernet_of()
    before, state = copy.deepcopy(supernet.model), torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        supernet.pick([batch()], lambda output, target: output.sum() * (1 / 0), bin_counts=np.array([3, 3]))
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_state(supernet.model, before)
    assert supernet.model.one.weight.shape[0] == 8


class ShowsItsMask(nn.Module):
    """The output is a dropout mask alone, whatever the widths are."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 40)

    def forward(self, x):
        scores = self.head(self.one(x).mean((2, 3)))
        return scores * 0 + functional.dropout(torch.ones_like(scores), 0.5, self.training)


@pytest.mark.parametrize("choice", [Exact(), Race(chunk=0.25, min_examples=4)])
def test_all_candidates_see_the_same_dropout_masks(choice):
    supernet = supernet_of(ShowsItsMask(), LocallyFree(1), choice)
    masks = []

    def recording(output, target):
        masks.append(output.detach())
        return output.mean()

    inputs = batch(16)[0]
    pick = supernet.pick([(inputs, torch.zeros(16))], recording, bin_counts=np.array([3]))
    assert pick.num_candidates == 3
    first = [mask for mask in masks if len(mask) == len(masks[0])][:3]
    assert 0.2 < float((first[0] == 0).float().mean()) < 0.8
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])
    if isinstance(choice, Exact):
        # the training pass drops what the trials dropped, so its loss is the trial's
        supernet.loss((inputs, torch.zeros(16)), pick, recording)
        assert torch.equal(masks[-1], first[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_race_that_starts_with_the_whole_batch_agrees_with_exact(seed):
    exact, race = (supernet_of(built(seed=seed), choice=choice) for choice in (Exact(), Race(chunk=1.0)))
    for number in range(5):
        state = torch.get_rng_state()
        one = exact.pick([batch(seed=number)], cross_entropy)
        torch.set_rng_state(state)
        other = race.pick([batch(seed=number)], cross_entropy)
        assert (one.candidate, one.trial_losses) == (other.candidate, other.trial_losses)
        assert one.bin_counts.tolist() == other.bin_counts.tolist()


def test_a_race_picks_one_of_the_candidates():
    supernet = supernet_of(sharing=LocallyFree(2), choice=Race(), bins=uniform_bins(traced(built()), 12))
    for number in range(10):
        pick = supernet.pick([batch(64, seed=number)], cross_entropy)
        candidates = [channels_of(supernet.space, subnet) for subnet in supernet.candidates(pick.bin_counts)]
        assert channels_of(supernet.space, pick.subnets[0]) == candidates[pick.candidate]
        assert pick.num_candidates == len(candidates)


def test_random_candidates_are_drawn_without_looking():
    supernet = supernet_of()

    def never(output, target):
        raise AssertionError("a random candidate needs no trial")

    bin_counts = np.array([3, 3])
    picks = [supernet.pick([batch()], never, bin_counts=bin_counts, random_candidate=True) for _ in range(40)]
    assert {pick.candidate for pick in picks} == {0, 1, 2}
    assert {pick.trial_losses for pick in picks} == {()}


def test_bilateral_averages_the_losses_of_both_sides():
    supernet = supernet_of(built(dropout=0.0), Bilateral())
    inputs, target = batch()
    pick = supernet.pick([(inputs, target)], cross_entropy, bin_counts=np.array([2, 3]))
    assert (pick.num_candidates, len(pick.subnets), pick.trial_losses) == (2, 2, ())
    sides = [
        {"one": [0, 1, 2, 3], "two": list(range(9))},
        {"one": [0, 1, 6, 7], "two": [0, 1, 2, 6, 7, 8, 9, 10, 11]},
    ]
    losses = [loss_of_slim_model(supernet, channels, inputs, target) for channels in sides]
    assert losses[0] != losses[1]
    loss = supernet.loss((inputs, target), pick, cross_entropy)
    assert float(loss.detach()) == pytest.approx(sum(losses) / 2, rel=1e-6)
    loss.backward()
    gradient = supernet.model.one.weight.grad.abs().sum((1, 2, 3))
    assert (gradient > 0).tolist() == [True, True, True, True, False, False, True, True]


def alike_layers(num_bins=32):
    """Six layers of 32 channels."""
    model = nn.Sequential(
        *(nn.Conv2d(3 if number == 0 else 32, 32, 1, bias=False) for number in range(6)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    space = cafenet.trace(model, torch.zeros(1, 3, 4, 4))
    return Supernet(model, space, uniform_bins(space, num_bins), seed=3)


@pytest.mark.parametrize("spread", [0.2, 0.4])
@pytest.mark.parametrize("band", [(0.4, 0.6), (0.9, 1.0), (0.25, 0.25)])
def test_widths_are_sampled_in_a_band_of_flops(band, spread):
    supernet = alike_layers()
    space = supernet.space
    bin_counts = np.array([supernet.sample(band, spread) for _ in range(300)])
    shares = space.flops(supernet.binned.bins.widths(bin_counts)) / space.flops()
    off = np.maximum(np.maximum(band[0] - shares, shares - band[1]), 0)
    assert off.max() < 0.06
    if band[1] > band[0]:
        assert np.ptp(shares) > 0.7 * (band[1] - band[0])
    means = bin_counts.mean(axis=0)
    assert means.max() < 1.3 * means.min(), "no group is favoured"
    assert (bin_counts.std(axis=0) > 0.5).all()


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_shares_of_the_groups_lie_as_far_apart_as_asked(spread):
    supernet = alike_layers()
    logarithms = np.log(np.array([supernet.sample((0.25, 0.3), spread) for _ in range(500)]) / 32)
    apart = logarithms - logarithms.mean(axis=1, keepdims=True)
    assert apart.std(axis=1, ddof=1).mean() == pytest.approx(spread, rel=0.1)
    assert abs(apart.mean(axis=0)).max() < 4 * spread / 500**0.5, "no group is favoured"
    # nothing but the spread keeps the groups from one another: far apart, some are full and some the smallest
    wide = np.array([supernet.sample((0.25, 0.3), 5.0) for _ in range(50)])
    assert wide.min() == 1
    assert wide.max() == 32


def test_a_band_of_flops_is_met_by_few_groups_too():
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(64, 4))
    space = cafenet.trace(model, torch.zeros(1, 3, 5, 5))
    supernet = Supernet(model, space, uniform_bins(space, 64), seed=1)
    bin_counts = np.array([supernet.sample((0.1, 0.2)) for _ in range(500)])
    shares = space.flops(supernet.binned.bins.widths(bin_counts)) / space.flops()
    assert shares.max() < 0.3


def test_widths_are_sampled_uniformly_over_bins():
    supernet = supernet_of(bins=flops_sensitive_bins(traced(built()), 2))  # 4 and 3 bins
    drawn = np.array([supernet.sample() for _ in range(3000)])
    for column, count in ((0, 4), (1, 3)):
        numbers, frequency = np.unique(drawn[:, column], return_counts=True)
        assert numbers.tolist() == list(range(1, count + 1))
        assert frequency / 3000 == pytest.approx(np.full(count, 1 / count), abs=0.04)
    # the groups vary independently
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.06


def test_equal_seeds_take_equal_steps():
    def losses(seed):
        supernet = supernet_of(seed=seed)
        torch.manual_seed(0)
        return [supernet.step(batch(seed=number), cross_entropy).loss.item() for number in range(5)]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


@pytest.mark.parametrize("kind", [Plain, Residual, Gated])
def test_a_full_width_step_is_a_plain_training_step(kind):
    model = built(kind)
    supernet = supernet_of(model)
    plain = copy.deepcopy(model).train()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (plain, supernet)]
    for number in range(3):
        inputs, target = batch(seed=number)
        torch.manual_seed(number)
        cross_entropy(plain(inputs), target).backward()
        torch.manual_seed(number)
        pick = supernet.pick([(inputs, target)], cross_entropy, bin_counts=supernet.binned.bins.num_bins)
        supernet.loss((inputs, target), pick, cross_entropy).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert_same_state(supernet.model, plain)  # batch norm's running statistics, too


@pytest.mark.parametrize("kind", [Plain, Residual, Gated])
@pytest.mark.parametrize("sharing", [LocallyFree(1), Bilateral()])
def test_the_output_of_a_subnet_is_the_slim_models(kind, sharing):
    supernet = supernet_of(built(kind), sharing)
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.1)
    for number in range(3):  # so that batch norm has statistics
        supernet.step(batch(seed=number), cross_entropy).loss.backward()
        optimizer.step()
    supernet.eval()
    inputs = batch()[0]
    for _ in range(3):
        for subnet in supernet.candidates(supernet.sample()):
            slim = supernet.space.extract(channels=channels_of(supernet.space, subnet), model=supernet.model).eval()
            assert torch.equal(supernet(inputs, subnet), slim(inputs))
    assert torch.equal(supernet(inputs), supernet.model(inputs))


def test_evaluation_leaves_statistics_alone_and_training_writes_only_what_it_used():
    supernet = supernet_of()
    before = copy.deepcopy(supernet.model)
    supernet.eval()
    supernet(batch()[0], supernet.candidates(np.array([2, 2]))[0])
    assert_same_state(supernet.model, before)
    supernet.train()
    (subnet,) = supernet.pick([batch()], cross_entropy, bin_counts=np.array([2, 2]), random_candidate=True).subnets
    supernet(batch()[0], subnet)
    changed = supernet.model.norm_one.running_mean != before.norm_one.running_mean
    assert np.flatnonzero(changed.numpy()).tolist() == channels_of(supernet.space, subnet)["one"]
    assert int(supernet.model.norm_one.num_batches_tracked) == 1


class CountsItsBatches(nn.Module):
    """Keeps statistics by assigning new tensors to its buffers, not in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, NUM_CLASSES)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        x = self.one(x).mean((2, 3))
        if self.training:
            self.seen = self.seen + 1
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(x - self.mean)


def test_buffers_that_the_forward_assigns_anew_are_kept():
    model = CountsItsBatches()
    supernet = supernet_of(model, LocallyFree(1))
    pick = supernet.pick([batch()], cross_entropy, bin_counts=np.array([2]))
    supernet.loss(batch(), pick, cross_entropy)
    assert float(supernet.model.seen) == 1  # and not 1 + the trials
    kept = channels_of(supernet.space, pick.subnets[0])["one"]
    expected = 0.1 * supernet.model.one(batch()[0]).mean((2, 3)).mean(0)
    assert np.flatnonzero(supernet.model.mean.numpy()).tolist() == kept
    torch.testing.assert_close(supernet.model.mean[kept], expected[kept].detach())
    assert float(model.seen) == 0


def test_trials_inside_the_users_autocast_do_not_cost_gradients():
    supernet = supernet_of(built(dropout=0.0))
    full = supernet.binned.bins.num_bins
    with torch.autocast("cpu", dtype=torch.bfloat16):
        supernet.trial_losses(batch(), [supernet.full()], cross_entropy)
        pick = supernet.pick([batch()], cross_entropy, bin_counts=full)
        loss = supernet.loss(batch(), pick, cross_entropy)
    loss.backward()
    assert [name for name, p in supernet.model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_a_model_with_a_weight_that_is_no_leaf():
    model = built(Plain)
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(model.one)
    model(batch()[0])
    supernet = supernet_of(model)
    supernet.step(batch(), cross_entropy).loss.backward()
    assert float(supernet.model.one.weight_v.grad.abs().sum()) > 0


def test_a_copy_of_a_supernet_is_independent():
    supernet = supernet_of()
    twin = copy.deepcopy(supernet)
    before = copy.deepcopy(supernet.model)
    torch.manual_seed(1)
    twin.step(batch(), cross_entropy).loss.backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert_same_state(supernet.model, before)
    assert all(parameter.grad is None for parameter in supernet.parameters())
    assert not torch.equal(twin.model.head.weight, before.head.weight)
    assert torch.equal(twin(batch()[0][:4]).isnan(), torch.zeros(4, NUM_CLASSES, dtype=torch.bool))


def test_models_with_several_inputs_and_nested_outputs():
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Conv2d(3, 8, 3)
            self.head = nn.Linear(8, NUM_CLASSES)

        def forward(self, image, scale):
            return {"scores": self.head(self.one(image).mean((2, 3)) * scale)}

    model = TwoInputs()
    space = cafenet.trace(model, (torch.zeros(2, 3, 4, 4), torch.ones(2, 1)))
    supernet = Supernet(model, space, uniform_bins(space, 4), choice=Race(chunk=0.25, min_examples=4)).train()
    inputs, target = batch(32)
    step = supernet.step(
        ((inputs, torch.rand(32, 1)), target), lambda output, target: cross_entropy(output["scores"], target)
    )
    step.loss.backward()
    assert float(supernet.model.one.weight.grad.abs().sum()) > 0


def test_a_plain_loop_of_the_users_own():
    model = built()
    space = traced(model)
    supernet = Supernet(model, space, flops_sensitive_bins(space, 2), LocallyFree(1)).train()
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for number in range(60):
        step = supernet.step(batch(32, seed=number), cross_entropy)
        step.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(step.loss.item())
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])


def test_a_step_trains_the_width_that_it_is_given():
    supernet, examples = supernet_of(seed=4), batch()
    torch.manual_seed(0)  # of dropout
    step = supernet.step(examples, cross_entropy, bin_counts=np.array([2, 1]))
    assert step.pick.bin_counts.tolist() == [2, 1]
    assert [len(units) for units in step.pick.subnets[0].units] == [4, 3]  # bins of 2 and 3 channels
    torch.manual_seed(0)
    assert step.loss.item() == supernet.loss(examples, step.pick, cross_entropy).item()
