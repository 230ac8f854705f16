"""Scores of widths: max-max equals brute force, racing only saves work, and neither order nor modes matter."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from cafenet.errors import ScoringError
from cafenet.scoring.metrics import accuracy, negative_loss
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.space.bins import uniform_bins
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.supernet.supernet import Supernet
from tests.helpers.small_search import TRAIN, VALIDATION, every_vector, noisy, tiny
from tests.helpers.small_training import Gated, Plain, WithoutNorm, built, channels_of, supernet_of, traced

CALIBRATION = TRAIN.tensors[0].split(32)
IMAGES, LABELS = VALIDATION.tensors
ONE_EXAMPLE = 1.01 / len(LABELS)


def config(**options):
    return ScoringConfig(**{"batch_size": 32, "min_examples": 16, **options})


def scorer_of(supernet, validation=VALIDATION, metric="accuracy", **options):
    return Scorer(supernet, TRAIN, validation, metric=metric, config=config(**options))


@torch.no_grad()
def outputs_by_hand(supernet, subnet, images=IMAGES, calibration=CALIBRATION):
    """The plain way: the slim model, its batch norms fed with the calibration batches, all images at once."""
    slim = supernet.space.extract(channels=channels_of(supernet.space, subnet), model=supernet.model).eval()
    norms = [module for module in slim.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    for batch in calibration:
        slim(batch)
    return slim.eval()(images)


def by_hand(supernet, bin_counts, metric=accuracy, target=LABELS):
    """The mean metric of every candidate."""
    subnets = supernet.candidates(np.array(bin_counts))
    return [float(metric(outputs_by_hand(supernet, subnet), target).double().mean()) for subnet in subnets]


def parts(score):
    """Everything of a score, to be compared bit for bit."""
    values = None if score.values is None else score.values.tolist()
    return (
        score.value,
        score.candidate,
        score.num_candidates,
        score.num_examples,
        score.is_complete,
        score.standard_error,
        values,
    )


@pytest.mark.parametrize("metric", [accuracy, negative_loss])
def test_exact_scores_equal_brute_force_over_all_candidates(metric):
    supernet = tiny()
    scorer = scorer_of(supernet, metric=metric.__name__)
    tolerance = {"abs": ONE_EXAMPLE} if metric is accuracy else {"rel": 1e-4}
    for bin_counts in every_vector(supernet.binned.num_bins)[::5]:
        values = by_hand(supernet, bin_counts, metric)
        score = scorer.score(bin_counts, exact=True)
        assert score.value == pytest.approx(max(values), **tolerance)
        assert values[score.candidate] == pytest.approx(max(values), **tolerance)
        assert (score.num_candidates, score.num_examples, score.is_complete) == (len(values), 256, True)


@pytest.mark.parametrize("metric", [accuracy, negative_loss])
def test_a_raced_score_is_the_chosen_candidates_own(metric):
    supernet = tiny(LocallyFree(2))
    scorer = scorer_of(supernet, metric=metric.__name__)
    tolerance = {"abs": ONE_EXAMPLE} if metric is accuracy else {"rel": 1e-4}
    regrets = []
    for bin_counts in ([4, 3], [3, 4], [5, 5], [6, 2], [2, 4]):
        values, score = by_hand(supernet, bin_counts, metric), scorer.score(np.array(bin_counts))
        assert score.value == pytest.approx(values[score.candidate], **tolerance)
        assert score.is_complete
        regrets.append((max(values) - score.value) / (max(values) - min(values)))
    assert np.mean(regrets) < 0.2  # picking at random gives a half


def test_a_race_that_sees_everything_ends_where_brute_force_does():
    supernet = tiny(LocallyFree(2))
    everything = scorer_of(supernet, metric="negative_loss", first_share=1.0, calibration_size=32)
    for bin_counts in ([4, 3], [3, 4], [5, 5]):
        exact = everything.score(np.array(bin_counts), exact=True)
        assert parts(everything.score(np.array(bin_counts))) == parts(exact)


def test_without_racing_scores_are_exact():
    supernet = tiny(LocallyFree(2))
    plain, fast = scorer_of(supernet, race=False), scorer_of(supernet)
    bin_counts = np.array([4, 3])
    bar = plain.score(np.array([8, 6]))
    assert (
        parts(plain.score(bin_counts, bar))
        == parts(plain.score(bin_counts, exact=True))
        == parts(fast.score(bin_counts, exact=True))
    )


def counting(seen):
    def metric(output, target):
        seen.append(len(target))
        return accuracy(output, target)

    return metric


def test_a_race_looks_at_few_examples():
    seen = []
    supernet = tiny(LocallyFree(2))
    scorer = scorer_of(supernet, metric=counting(seen))
    bin_counts = np.array([4, 3])
    assert len(scorer.candidates(bin_counts)) == 10
    seen.clear()
    scorer.score(bin_counts)
    # a sixteenth of 256 for all 10, twice as many for the better 4 and again for the better 2, all for the winner
    assert sum(seen) == 10 * 16 + 4 * 32 + 2 * 64 + 256
    seen.clear()
    scorer.score(bin_counts, exact=True)
    assert sum(seen) == 10 * 256


def test_a_race_decides_on_a_least_number_of_examples():
    seen = []
    scorer = scorer_of(tiny(), metric=counting(seen), min_examples=100)
    seen.clear()
    scorer.score(np.array([4, 3]))
    assert sum(seen) == 3 * 100 + 256
    scorer = scorer_of(tiny(), metric=counting(seen), min_examples=1000)
    seen.clear()
    scorer.score(np.array([4, 3]))
    assert sum(seen) == 3 * 256 + 256


def test_a_race_recalibrates_on_growing_parts():
    supernet, runs = tiny(LocallyFree(2)), []
    scorer = scorer_of(supernet, batch_size=12)  # 96 calibration examples are 8 batches
    norm = supernet.model.norm_one
    supernet.model.register_forward_pre_hook(lambda module, args: runs.append(len(args[0]) if norm.training else 0))
    scorer.score(np.array([4, 3]))
    # 10 candidates see 2 batches, 4 of them 4 batches, 2 of them 8 and the winner 8; what a candidate saw before counts
    assert 12 * (10 * 2 + 4 * 2 + 2 * 4) <= sum(runs) <= 12 * (10 * 2 + 4 * 4 + 2 * 8 + 8)


def test_values_serve_as_a_bar_and_are_kept_as_the_store_keeps_them():
    scorer = scorer_of(tiny(), metric="negative_loss", drop_below=1e9)
    bar = scorer.score(np.array([4, 4]))
    assert (bar.values == bar.values.astype(np.float32)).all()
    assert bar.value == bar.values.mean()
    worse, better = scorer.score(np.array([1, 1]), bar), scorer.score(np.array([8, 6]), bar)
    assert worse.is_complete
    assert worse.value < bar.value < better.value
    assert worse.values is None  # it will never be a bar
    assert better.values.shape == (256,)


def test_one_example_decides_nothing():
    scorer = Scorer(tiny(), TRAIN, noisy(8, 2), config=ScoringConfig(min_examples=1))
    bar = scorer.score(np.array([8, 6]))
    for bin_counts in every_vector([8, 6])[::3]:
        score = scorer.score(bin_counts, bar)
        assert np.isfinite(score.standard_error)
        assert score.num_examples >= 2


def test_a_hopeless_width_is_dropped_with_the_difference_seen_so_far():
    seen = []
    scorer = scorer_of(tiny(), metric=counting(seen))
    bar, hopeless = scorer.score(np.array([8, 6])), np.array([1, 1])
    whole = scorer.score(hopeless)
    seen.clear()
    dropped = scorer.score(hopeless, bar)
    assert sum(seen) == dropped.num_examples == 256 // 8
    assert not dropped.is_complete
    assert dropped.values is None
    difference = whole.values[:32] - bar.values[:32]
    assert dropped.value == pytest.approx(bar.value + difference.mean())
    assert dropped.standard_error == pytest.approx(difference.std(ddof=1) * (1 / 32 - 1 / 256) ** 0.5)
    assert abs(dropped.value - whole.value) < 3 * dropped.standard_error
    assert dropped.value < bar.value


def test_widths_are_dropped_at_growing_parts_by_the_rule():
    scorer = scorer_of(tiny())
    bar, dropped_at = scorer.score(np.array([4, 4])), set()
    for bin_counts in every_vector([8, 6])[::2]:
        score, whole = scorer.score(bin_counts, bar), scorer.score(bin_counts)
        assert score.candidate == whole.candidate
        for stop in (32, 64, 128, 192):
            if stop < score.num_examples:  # it was not clearly behind there, or it would have been dropped
                gap = whole.values[:stop] - bar.values[:stop]
                assert gap.mean() + gap.std(ddof=1) / stop**0.5 >= 0
        if score.is_complete:
            assert (score.value, score.num_examples, score.standard_error) == (whole.value, 256, 0.0)
        else:
            assert score.value + score.standard_error < bar.value
            assert score.standard_error > 0
        dropped_at.add(score.num_examples)
    assert dropped_at >= {16, 32, 256}
    assert dropped_at <= {16, 32, 64, 128, 192, 256}


def test_a_good_width_is_never_dropped():
    scorer = scorer_of(tiny())
    bar = scorer.score(np.array([3, 3]))
    for bin_counts in every_vector([8, 6])[::2]:
        whole = scorer.score(bin_counts)
        if whole.value >= bar.value + 0.05:
            assert parts(scorer.score(bin_counts, bar)) == parts(whole)
    assert scorer.score(np.array([3, 3]), bar).is_complete


def test_widths_are_dropped_less_readily_if_asked():
    ready, patient = scorer_of(tiny()), scorer_of(tiny(), drop_below=8.0)
    bar = ready.score(np.array([8, 6]))
    dropped = [
        sum(not scorer.score(bin_counts, bar).is_complete for bin_counts in every_vector([8, 6])[::3])
        for scorer in (ready, patient)
    ]
    assert 0 < dropped[1] < dropped[0]


def test_nothing_is_dropped_on_fewer_examples_than_the_least():
    scorer = scorer_of(tiny(), min_examples=100)
    bar = scorer.score(np.array([8, 6]))
    assert scorer.score(np.array([1, 1]), bar).num_examples == 128
    scorer = scorer_of(tiny(), min_examples=193)
    assert scorer.score(np.array([1, 1]), bar).is_complete


def orders():
    by_class, shuffle = LABELS.argsort(), torch.randperm(256, generator=torch.Generator().manual_seed(3))
    yield TensorDataset(IMAGES[by_class], LABELS[by_class])
    yield TensorDataset(IMAGES[shuffle], LABELS[shuffle])
    yield DataLoader(VALIDATION, batch_size=7, shuffle=True)
    yield [(IMAGES[part], LABELS[part]) for part in by_class.split([1, 200, 5, 50])]


@pytest.mark.parametrize("metric", ["accuracy", "negative_loss"])
def test_the_order_of_the_validation_set_does_not_matter(metric):
    supernet = tiny()
    first, *others = [scorer_of(supernet, validation, metric) for validation in (VALIDATION, *orders())]
    bar = first.score(np.array([5, 4]))
    assert len(others) == 4
    for other in others:
        assert parts(other.score(np.array([5, 4]))) == parts(bar)
        for bin_counts, options in (
            ([4, 3], {"exact": True}),
            ([4, 3], {"bar": bar}),
            ([1, 1], {"bar": bar}),
            ([7, 5], {}),
        ):
            expected = first.score(np.array(bin_counts), **options)
            assert parts(other.score(np.array(bin_counts), **options)) == parts(expected)
        assert other.validation.digest() == first.validation.digest()


@pytest.mark.parametrize("batch_size", [2, 50, 300])
def test_the_size_of_batches_does_not_matter_where_one_calibrates(batch_size):
    supernet = tiny()
    scorer, usual = (scorer_of(supernet, batch_size=size, calibration_size=2) for size in (batch_size, 32))
    score, expected = (each.score(np.array([4, 3]), exact=True).value for each in (scorer, usual))
    assert score == pytest.approx(expected, abs=ONE_EXAMPLE)


def attributes():
    """Targets of four attributes: whether the class is at least so much."""
    return (LABELS[:, None] >= torch.tensor([1, 2, 3, 0])).float()


def test_multi_label_accuracy():
    supernet, target = tiny(), attributes()
    scorer = scorer_of(supernet, TensorDataset(IMAGES, target))
    expected = by_hand(supernet, [4, 3], lambda output, target: ((output > 0) == (target > 0)).double(), target)
    assert scorer.score(np.array([4, 3]), exact=True).value == pytest.approx(max(expected), abs=ONE_EXAMPLE / 2)
    shares = target.mean(0)
    assert scorer.chance == pytest.approx(float(torch.maximum(shares, 1 - shares).mean()))


def test_scores_of_probabilities_are_known_by_another_name_than_those_of_attributes():
    images, labels = VALIDATION.tensors
    soft = TensorDataset(images, torch.nn.functional.one_hot(labels).float())
    supernet = tiny()
    names = [Scorer(supernet, TRAIN, soft, loss=loss).scored_by for loss in (None, "bce", "cross_entropy")]
    assert names == ["accuracy", "accuracy", "class_accuracy"]
    assert Scorer(supernet, TRAIN, VALIDATION, loss="cross_entropy").scored_by == "accuracy"


def test_chance_is_known_for_accuracy_alone():
    counts = torch.bincount(LABELS)
    assert scorer_of(tiny()).chance == float(counts.max()) / 256
    assert scorer_of(tiny(), metric="negative_loss").chance is None
    assert scorer_of(tiny(), metric=accuracy).chance is None


def second_best(output, target):
    """Right if the label is among the two largest outputs; a numpy array."""
    return (output.topk(2, dim=1).indices == target[:, None]).any(dim=1).numpy().astype(np.float32)


def test_a_function_of_each_example():
    supernet = tiny()
    scorer = scorer_of(supernet, metric=second_best)
    expected = by_hand(supernet, [4, 3], lambda *pair: torch.from_numpy(second_best(*pair)))
    score = scorer.score(np.array([4, 3]), exact=True)
    assert scorer.is_per_example
    assert scorer.metric_name == "second_best"
    assert score.value == pytest.approx(max(expected), abs=ONE_EXAMPLE)
    assert score.values.shape == (256,)


def balanced_accuracy(output, target):
    right = output.argmax(dim=1) == target
    return float(torch.stack([right[target == label].double().mean() for label in target.unique()]).mean())


def test_a_function_of_one_number_for_all_examples():
    supernet = tiny()
    scorer = scorer_of(supernet, metric=balanced_accuracy)
    expected = by_hand(supernet, [4, 3], lambda *pair: torch.tensor(balanced_accuracy(*pair)))
    score = scorer.score(np.array([4, 3]), exact=True)
    assert not scorer.is_per_example
    assert score.value == pytest.approx(max(expected), abs=2 * ONE_EXAMPLE)
    assert score.values is None
    raced = scorer.score(np.array([4, 3]), bar=score)
    assert raced.is_complete
    assert raced.value == pytest.approx(expected[raced.candidate], abs=2 * ONE_EXAMPLE)
    assert scorer.score(np.array([1, 1]), bar=scorer.score(np.array([8, 6]))).is_complete


def test_a_metric_object_without_a_name():
    class Right:
        def __call__(self, output, target):
            return accuracy(output, target)

    assert scorer_of(tiny(), metric=Right()).metric_name == "Right"


def test_the_bilateral_pattern_scores_the_mean_of_both_sides():
    supernet = tiny(Bilateral())
    scorer = scorer_of(supernet)
    left, right = by_hand(supernet, [4, 3])
    assert abs(left - right) > 10 * ONE_EXAMPLE
    for options in ({}, {"exact": True}):
        score = scorer.score(np.array([4, 3]), **options)
        assert score.value == pytest.approx((left + right) / 2, abs=ONE_EXAMPLE)
        assert (score.candidate, score.num_candidates) == (0, 2)


@pytest.mark.parametrize("options", [{}, {"exact": True}])
def test_the_mean_over_candidates_as_the_score(options):
    supernet = tiny()
    scorer = scorer_of(supernet, candidates="mean")
    values = by_hand(supernet, [4, 3])
    score = scorer.score(np.array([4, 3]), **options)
    assert score.value == pytest.approx(sum(values) / 3, abs=ONE_EXAMPLE)
    assert max(values) - score.value > ONE_EXAMPLE
    assert (score.candidate, score.num_candidates) == (values.index(max(values)), 3)


def test_drawn_candidates_are_the_same_each_time():
    supernet = tiny(LocallyFree(1, per_group=True, max_candidates=4))
    scorer, bin_counts = scorer_of(supernet), np.array([4, 3])
    first = [[units.tolist() for units in subnet.units] for subnet in scorer.candidates(bin_counts)]
    supernet.sample()
    assert [[units.tolist() for units in subnet.units] for subnet in scorer.candidates(bin_counts)] == first
    assert [units.tolist() for units in scorer.subnet(bin_counts, 1).units] == first[1]
    assert first[1] != first[0]
    assert [[units.tolist() for units in subnet.units] for subnet in scorer.candidates(np.array([5, 3]))] != first


def test_a_supernet_in_channels_last():
    supernet = tiny()
    expected = by_hand(supernet, [4, 3], negative_loss)
    assert scorer_of(supernet).validation.batch[0].is_contiguous()
    supernet.model.to(memory_format=torch.channels_last)
    scorer = scorer_of(supernet, metric="negative_loss")
    assert scorer.validation.batch[0].is_contiguous(memory_format=torch.channels_last)
    assert scorer.calibration.batch[0].is_contiguous(memory_format=torch.channels_last)
    assert scorer.score(np.array([4, 3]), exact=True).value == pytest.approx(max(expected), rel=1e-4)


def test_a_model_without_batch_norm_is_not_recalibrated():
    model = built(WithoutNorm)
    runs = []
    supernet = supernet_of(model)
    scorer = scorer_of(supernet, metric="negative_loss")
    supernet.model.register_forward_pre_hook(lambda module, args: runs.append(len(args[0])))
    score = scorer.score(np.array([2, 2]), exact=True)
    assert sum(runs) == score.num_candidates * 256
    assert score.value == pytest.approx(max(by_hand(supernet, [2, 2], negative_loss)), rel=1e-4)


def test_dropout_is_off_and_modes_and_weights_and_random_numbers_stay():
    supernet = tiny().train()
    supernet.model.norm_one.eval()
    supernet.model.dropout.p = 0.9
    scorer = scorer_of(supernet, metric="negative_loss")
    state, random = copy.deepcopy(supernet.state_dict()), torch.get_rng_state()
    modes = [module.training for module in supernet.modules()]
    drawn = supernet.generator.get_state()
    score = scorer.score(np.array([4, 3]))
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(supernet.generator.get_state(), drawn)
    assert [module.training for module in supernet.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in supernet.state_dict().items())
    assert score.value == pytest.approx(by_hand(supernet, [4, 3], negative_loss)[score.candidate], rel=1e-4)
    assert parts(scorer.score(np.array([4, 3]))) == parts(score)


def test_calibration_takes_as_many_examples_as_asked():
    scorer = scorer_of(tiny(), calibration_size=10)
    assert scorer.calibration.size == 10
    assert set(map(tuple, scorer.calibration.batch[0].flatten(1).tolist())) < set(
        map(tuple, TRAIN.tensors[0].flatten(1).tolist())
    )


def test_a_large_validation_set_is_sampled():
    """The same sample each time, and scores are those of a set that holds nothing else."""
    scorer, other = (scorer_of(tiny(), max_examples=100) for _ in range(2))
    images, labels = scorer.validation.batch
    assert scorer.validation.size == 100
    assert torch.equal(images, other.validation.batch[0])
    assert set(map(tuple, images.flatten(1).tolist())) < set(map(tuple, VALIDATION.tensors[0].flatten(1).tolist()))
    alone = scorer_of(tiny(), validation=TensorDataset(images, labels))
    score = scorer.score(np.array([4, 3]))
    assert (score.num_examples, score.is_complete) == (100, True)
    assert parts(score) == parts(alone.score(np.array([4, 3])))


@pytest.mark.parametrize("metric", ["accuracy", "negative_loss", balanced_accuracy])
def test_weights_that_are_not_numbers_are_an_error(metric):
    supernet = tiny()
    scorer = scorer_of(supernet, metric=metric)
    with torch.no_grad():
        supernet.model.two.weight[0, 0] = float("nan")
    with pytest.raises(ScoringError, match="the supernet's weights"):
        scorer.score(np.array([4, 3]))


def test_a_metric_that_is_not_finite_is_an_error():
    scorer = scorer_of(tiny(), metric=lambda output, target: accuracy(output, target) / 0.0)
    with pytest.raises(ScoringError, match="a metric must be finite"):
        scorer.score(np.array([4, 3]))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("acuracy", "metric must be 'accuracy', 'negative_loss', 'perplexity', 'token_accuracy' or a function"),
        (
            lambda output, target: output,
            r"one value an example \(shape \[8\] here\) or one number, but <lambda> .* \[8, 4\]",
        ),
        (lambda output, target: torch.zeros(1), r"but <lambda> returned shape \[1\]"),
        (lambda output, target: torch.zeros(0), r"but <lambda> returned shape \[0\]"),
    ],
)
def test_a_metric_of_the_wrong_kind_is_an_error_at_once(metric, message):
    with pytest.raises(ScoringError, match=message):
        scorer_of(tiny(), metric=metric)


class TwoHeads(Plain):
    def forward(self, x):
        return super().forward(x), x.mean()


def test_outputs_that_are_not_one_tensor():
    supernet = supernet_of(built(TwoHeads))
    with pytest.raises(ScoringError, match="but got tuple and Tensor; pass a function"):
        scorer_of(supernet)
    with pytest.raises(ScoringError, match="one number needs outputs that are one tensor, but they are tuple"):
        scorer_of(supernet, metric=lambda output, target: 1.0)
    scorer = scorer_of(supernet, metric=lambda output, target: accuracy(output[0], target))
    values = by_hand_of_first_head(supernet)
    assert scorer.score(np.array([2, 2]), exact=True).value == pytest.approx(max(values), abs=ONE_EXAMPLE)


def by_hand_of_first_head(supernet):
    subnets = supernet.candidates(np.array([2, 2]))
    return [float(accuracy(outputs_by_hand(supernet, subnet)[0], LABELS).mean()) for subnet in subnets]


@pytest.mark.parametrize(
    "empty", [[], DataLoader(noisy(4, 1), batch_size=8, sampler=torch.utils.data.SubsetRandomSampler([]))]
)
def test_no_validation_or_training_data_is_an_error(empty):
    with pytest.raises(ScoringError, match="validation data must hold at least one example"):
        Scorer(tiny(), TRAIN, empty)
    with pytest.raises(ScoringError, match="training data must hold at least one example"):
        Scorer(tiny(), empty, VALIDATION)


def test_one_validation_example_is_enough():
    scorer = Scorer(tiny(), TRAIN, noisy(1, 5))
    bar = scorer.score(np.array([8, 6]))
    assert scorer.score(np.array([1, 1]), bar).value in (0.0, 1.0)


class ByName(Dataset):
    """Inputs as keyword arguments."""

    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        image, label = self.examples[index]
        return {"x": image}, label


def test_inputs_by_name():
    supernet = tiny()
    scorer = Scorer(supernet, ByName(TRAIN), ByName(VALIDATION), config=config())
    assert (
        scorer.score(np.array([4, 3]), exact=True).value
        == scorer_of(supernet).score(np.array([4, 3]), exact=True).value
    )


def test_groups_that_are_kept_in_pairs():
    model = built(Gated)
    space = traced(model)
    supernet = Supernet(model, space, uniform_bins(space, 3))
    values = by_hand(supernet, [2, 2], negative_loss)
    score = scorer_of(supernet, metric="negative_loss").score(np.array([2, 2]), exact=True)
    assert score.value == pytest.approx(max(values), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_share": 0.0}, "first_share must be a number above 0 and at most 1, but is 0.0"),
        ({"first_share": 1.5}, "first_share must be a number above 0 and at most 1, but is 1.5"),
        ({"min_examples": 0}, "min_examples must be a whole number of at least 1, but is 0"),
        ({"calibration_size": 0}, "calibration_size must be a whole number of at least 1, but is 0"),
        ({"max_examples": 0}, "max_examples must be a whole number of at least 1, but is 0"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2, but is 1"),
        ({"drop_below": 0.0}, "drop_below must be a number above 0, but is 0.0"),
        ({"drop_below": float("nan")}, "drop_below must be a number above 0, but is nan"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ScoringError, match=message):
        ScoringConfig(**options)
