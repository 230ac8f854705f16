"""Examples in memory: all that a user means, none that they do not, in an order that only their content decides."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import cafenet.scoring.examples
from cafenet.errors import ScoringError
from cafenet.scoring.examples import Examples, hold_examples, in_content_order
from tests.helpers.small_search import VALIDATION, noisy

IMAGES, LABELS = VALIDATION.tensors


def numbered(n):
    """Examples that say their number."""
    return TensorDataset(torch.arange(float(n))[:, None], torch.arange(n))


def numbers(data, **options):
    """The numbers of the examples that are held, sorted; inputs and targets belong together."""
    held = hold_examples(data, "data", **options)
    inputs, targets = held.batch
    assert held.size == len(targets)
    assert torch.equal(inputs[:, 0].long(), targets)
    return sorted(targets.tolist())


class Stream(IterableDataset):
    """Ten numbered examples one after the other, as many as it says where it has a length."""

    def __iter__(self):
        return iter([numbered(10)[n] for n in range(10)])


class LongStream(Stream):
    def __len__(self):
        return 10


class Augmented(Dataset):
    """Noise from all three generators on every example."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return torch.tensor([torch.rand(()).item(), random.random(), np.random.rand()]), index


@pytest.mark.parametrize(
    ("start", "stop", "batch_size", "sizes"),
    [
        (0, 10, 4, [4, 3, 3]),
        (0, 10, 5, [5, 5]),
        (0, 10, 10, [10]),
        (0, 10, 99, [10]),
        (3, 10, 6, [4, 3]),
        (4, 5, 2, [1]),
        (0, 9, 8, [4, 5]),
    ],
)
def test_batches_are_even_and_cover_the_part_in_order(start, stop, batch_size, sizes):
    examples = hold_examples(numbered(10), "data")
    parts = [target.tolist() for _, target in examples.batches(start, stop, batch_size)]
    assert sorted(map(len, parts)) == sorted(sizes)
    assert [number for part in parts for number in part] == list(range(start, stop))


KINDS = {
    "data set": numbered(10),
    "loader": DataLoader(numbered(10), batch_size=3),
    "shuffled loader": DataLoader(numbered(10), batch_size=3, shuffle=True, drop_last=True),
    "loader with a worker": DataLoader(numbered(10), batch_size=3, num_workers=1),
    "loader of a list": DataLoader(list(numbered(10)), batch_size=4),
    "loader of a stream": DataLoader(Stream(), batch_size=4),
    "loader of a stream with a length": DataLoader(LongStream(), batch_size=4),
    "loader of ready batches": DataLoader([numbered(10)[:6], numbered(10)[6:]], batch_size=None),
    "stream": Stream(),
    "stream with a length": LongStream(),
    "batches": list(DataLoader(numbered(10), batch_size=4)),
    "one batch": [numbered(10)[:]],
    "generator": (numbered(10)[part] for part in (slice(0, 1), slice(1, 10))),
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_data_is_held_whole(data):
    assert numbers(data) == list(range(10))


def test_a_loader_lends_its_collate_function():
    def collate(examples):
        inputs, targets = torch.utils.data.default_collate(examples)
        return {"x": inputs * 2}, targets

    held = hold_examples(DataLoader(numbered(5), collate_fn=collate), "data")
    assert held.batch[0]["x"][:, 0].tolist() == [0, 2, 4, 6, 8]


def test_a_loader_of_a_subset_holds_the_subset():
    sampler = SubsetRandomSampler([7, 2, 5])
    assert numbers(DataLoader(numbered(10), sampler=sampler)) == [2, 5, 7]
    assert set(numbers(DataLoader(numbered(10), sampler=sampler), num_examples=2)) < {2, 5, 7}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"sampler": WeightedRandomSampler([1.0] * 10, 10)}, "WeightedRandomSampler"),
        ({"sampler": RandomSampler(range(10), replacement=True)}, "RandomSampler"),
        ({"sampler": RandomSampler(range(10), num_samples=4)}, "RandomSampler"),
        ({"sampler": SequentialSampler(range(4))}, "SequentialSampler"),
        ({"batch_sampler": [[1, 2], [3]]}, "list"),
        ({"batch_sampler": type("Balanced", (BatchSampler,), {})(SequentialSampler(range(10)), 2, False)}, "Balanced"),
    ],
)
def test_a_loader_that_reads_who_knows_what_is_refused(options, name):
    with pytest.raises(ScoringError, match=f"same examples each time, but has a {name}; .* torch.utils.data.Subset"):
        hold_examples(DataLoader(numbered(10), **options), "data")


def test_a_sample_of_a_data_set_is_fixed_random_and_as_large_as_asked():
    first = hold_examples(numbered(1000), "data", num_examples=100)
    assert first.size == len(set(first.batch[1].tolist())) == 100
    torch.manual_seed(5)
    np.random.seed(5)
    again = hold_examples(DataLoader(numbered(1000), shuffle=True), "data", num_examples=100)
    assert torch.equal(again.batch[1], first.batch[1])
    assert 400 < first.batch[1].double().mean() < 600
    assert numbers(numbered(20), num_examples=50) == list(range(20))


def test_of_batches_the_first_examples_are_held():
    read = []

    def batches():
        for part in (slice(0, 4), slice(4, 8), slice(8, 10)):
            read.append(part.start)
            yield numbered(10)[part]

    assert numbers(batches(), num_examples=6) == list(range(6))
    assert read == [0, 4]


def test_augmentations_are_the_same_each_time_and_leave_the_generators_alone():
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = hold_examples(Augmented(), "data", num_examples=20)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    torch.manual_seed(9)
    again = hold_examples(Augmented(), "data", num_examples=20)
    assert torch.equal(first.batch[0], again.batch[0])
    assert len(first.batch[0].unique()) == 60


def test_images_take_the_memory_format_and_nothing_else_does():
    batch = {"image": torch.rand(4, 3, 5, 5), "table": torch.rand(4, 3)}, torch.arange(4)
    inputs, _ = hold_examples([batch], "data", memory_format=torch.channels_last).batch
    assert inputs["image"].is_contiguous(memory_format=torch.channels_last)
    assert not batch[0]["image"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(inputs["image"], batch[0]["image"])
    assert inputs["table"].is_contiguous()


@pytest.mark.parametrize("empty", [[], numbered(0), DataLoader(numbered(0)), iter(())])
def test_no_examples_are_an_error(empty):
    with pytest.raises(ScoringError, match="validation data must hold at least one example, but is empty"):
        hold_examples(empty, "validation data")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([torch.zeros(3)], r"it must give pairs \(inputs, target\) or dicts, but gave Tensor"),
        ([(torch.zeros(3), torch.zeros(3), torch.zeros(3))], "it must give pairs"),
        (7, "data must be a data set, a DataLoader or a list of batches, but got int"),
        (None, "but got NoneType"),
    ],
)
def test_what_is_not_data_is_an_error(data, message):
    with pytest.raises(ScoringError, match=message):
        hold_examples(data, "it")


def test_data_that_does_not_fit_into_memory_is_an_error_before_it_is_read_whole(monkeypatch):
    monkeypatch.setattr(cafenet.scoring.examples, "MOST_BYTES", 2**30)
    read = []

    def batches():
        for number in range(100):
            read.append(number)
            yield torch.zeros(1).expand(2**27), torch.zeros(2**27, 0)  # half a GiB that takes no memory

    with pytest.raises(ScoringError, match=r"must fit into 1 GiB of memory, but .* examples do not; pass fewer"):
        hold_examples(batches(), "data")
    assert read == [0, 1, 2]


def shuffled(seed):
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(seed))
    return Examples((IMAGES[order], LABELS[order]), len(LABELS))


def test_only_the_content_decides_the_order():
    orders = [shuffled(0), shuffled(1), Examples((IMAGES, LABELS), len(LABELS))]
    first, *others = [in_content_order(each) for each in orders]
    for other in others:
        assert torch.equal(first.batch[0], other.batch[0])
        assert torch.equal(first.batch[1], other.batch[1])
    assert not torch.equal(first.batch[1], LABELS)
    assert len({each.digest() for each in (*orders, first)}) == 1


def test_a_part_of_examples_sorted_by_class_has_all_classes():
    order = LABELS.argsort()
    mixed = in_content_order(Examples((IMAGES[order], LABELS[order]), len(LABELS)))
    counts = torch.bincount(mixed.batch[1][:64], minlength=4)
    assert counts.min() >= 8
    assert counts.max() <= 26


def test_inputs_with_several_parts_stay_together_and_what_has_no_examples_stays():
    generator = torch.Generator().manual_seed(0)
    left, right, table = torch.rand(9, 2, generator=generator), torch.arange(9), torch.rand(3, generator=generator)
    examples = Examples(({"left": left, "right": right, "table": table, "flag": True}, right * 10), 9)
    inputs, target = in_content_order(examples).batch
    assert torch.equal(inputs["left"], left[inputs["right"]])
    assert torch.equal(target, inputs["right"] * 10)
    assert not torch.equal(inputs["right"], right)
    assert torch.equal(inputs["table"], table)
    assert inputs["flag"] is True


def test_batches_with_parts_that_have_no_examples_are_joined():
    table = torch.rand(4)  # as long as the first batch
    held = hold_examples(
        [((torch.zeros(4, 1), table), torch.zeros(4)), ((torch.ones(2, 1), table), torch.ones(2))], "x"
    )
    assert held.size == 6
    assert held.batch[0][0][:, 0].tolist() == held.batch[1].tolist() == [0, 0, 0, 0, 1, 1]
    assert torch.equal(held.batch[0][1], table)


@pytest.mark.parametrize("change", ["pixel", "label", "missing", "twice"])
def test_other_content_has_another_digest(change):
    images, labels = IMAGES.clone(), LABELS.clone()
    if change == "pixel":
        images[7, 0, 0, 0] += 1e-6
    if change == "label":
        labels[7] = (labels[7] + 1) % 4
    if change == "missing":
        images, labels = images[1:], labels[1:]
    if change == "twice":
        images, labels = torch.cat([images, images[:1]]), torch.cat([labels, labels[:1]])
    other = Examples((images, labels), len(labels))
    assert other.digest() != Examples((IMAGES, LABELS), len(LABELS)).digest()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.bool])
def test_inputs_of_any_type(dtype):
    images = (IMAGES[:40] * 100).to(dtype)
    first, second = (
        Examples((images[order], LABELS[order]), 40) for order in (torch.arange(40), torch.arange(39, -1, -1))
    )
    assert first.digest() == second.digest()
    assert torch.equal(in_content_order(first).batch[0], in_content_order(second).batch[0])


def test_examples_of_two_sets_differ():
    assert hold_examples(noisy(20, 1), "data").digest() != hold_examples(noisy(20, 2), "data").digest()


class Named(Dataset):
    """Examples whose targets have a text."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        return torch.tensor([float(index)]), {"label": index, "file": f"{index}.png"}


def test_texts_stay_with_their_examples():
    """Batches of 256 and 44, put into an order of their content and cut into parts."""
    held = in_content_order(hold_examples(Named(), "data"))
    for inputs, target in held.batches(0, 300, 70):
        assert target["file"] == [f"{number}.png" for number in target["label"].tolist()]
        assert inputs[:, 0].tolist() == target["label"].tolist()


def test_a_list_holds_batches_unless_its_targets_are_numbers():
    examples = [(torch.tensor([float(number)]), number) for number in range(5)]
    assert numbers(examples) == [0, 1, 2, 3, 4]
    assert numbers([(inputs, torch.tensor(label)) for inputs, label in examples]) == [0, 1, 2, 3, 4]
    assert numbers([(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))] * 2) == [0, 0, 1, 1]
