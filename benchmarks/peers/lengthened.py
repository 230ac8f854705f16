"""The wins that survive: widths that methods found, trained from scratch five times as long on all images.

The rule, written down before the first training: five times the steps of the short trainings (50 epochs of all 20,000
training images in place of 20 epochs of 10,000), everything else as there; test accuracy after the last epoch. A pair
is one network and one seed of the search; the primary comparison is CafeNet-T minus Uniform and minus FastNAS over the
three networks, for each budget, by the paired 95% interval. Uniform is one factor on channels; it has no search, so
each of its trainings is paired with the search whose seed it has. Nothing is trained again or left out by its result.

Half trust (`Trend(trust=0.5)`) came later, with its own rule before its first training: on the external table of 60
epochs half of the fitted differences between groups ranks better than all of them, on labels of 10 epochs worse. It
becomes the default if after the long trainings, at 25% over the three networks, its mean is not below full trust's.
"""

from torch import nn

import cafenet
from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from benchmarks.common.results_file import Results
from benchmarks.peers.tasks import BATCH_SIZE, SCRATCH_EPOCHS, SIZE, Task, trained_for
from cafenet.data import Augmentation, ImageData, load_data, train_loader
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.plain_training import initialised, train_model

METHODS = ("Uniform", "ModelOpt FastNAS", "CafeNet-T")
LATER = ("CafeNet-T, half trust",)
TIMES_AS_LONG = 5
OTHER_SEED = 1000
"""Distance between the seeds of one network's trainings."""


def part_of(network: str, percent: int) -> str:
    """The part of the results that holds the long trainings."""
    return f"{network} {percent}% five times as long"


def known_methods(results: Results, network: str, percent: int, seed: int) -> tuple[str, ...]:
    """The methods of the first rule, and later ones as far as they have found something."""
    found = results.rows(f"{network} {percent}%")
    return METHODS + tuple(name for name in LATER if str(seed) in found.get(name, {}))


def train_five_times_as_long(results: Results, work: Task, percent: int, name: str, seed: int, again: int) -> None:
    """Train what a method found with one seed, unless that was done; `again` counts further trainings of it."""
    inner = f"{seed} again {again}" if again else str(seed)
    if inner in results.rows(part_of(work.name, percent)).get(name, {}):
        return
    slim = _found(results, work, percent, name, seed)
    training_seed = seed + OTHER_SEED * again
    images = all_images()
    epochs = TIMES_AS_LONG * SCRATCH_EPOCHS * len(work.train) / len(images)
    batches = train_loader(images, BATCH_SIZE, Augmentation(padding=2, flip=True))
    fresh = initialised(slim, training_seed)
    fresh = train_model(fresh, work.example, batches, trained_for(epochs, training_seed), quiet=True)
    accuracy = work.accuracy(fresh)
    results.add(part_of(work.name, percent), name, accuracy, inner)
    print(f"{part_of(work.name, percent)}: {name}, seed {inner}: {accuracy}", flush=True)


def all_images() -> ImageData:
    """Every training image of CIFAR-10, at the size of the short trainings."""
    return shrunk(load_data(f"npz:{CIFAR}").train, SIZE)


def _found(results: Results, work: Task, percent: int, name: str, seed: int) -> nn.Module:
    if name == "Uniform":
        return _uniform(work, percent)
    found = results.rows(f"{work.name} {percent}%")[name][str(seed)]
    slim = work.slim(found["widths"])
    if work.flops(slim) != found["flops"]:
        raise RuntimeError(
            f"{work.name} {percent}% {name}, seed {seed}: {work.flops(slim)} FLOPs, not {found['flops']}"
        )
    return slim


def _uniform(work: Task, percent: int) -> nn.Module:
    model = work.build(seed=0)
    space = cafenet.trace(model, work.example)
    costs = {"flops": space.flops, "params": space.params}
    feasible = Feasible(flops_sensitive_bins(space, 0.5), costs, parse_budget(f"{percent}%", space))
    return space.extract(uniform_widths(space, feasible).tolist())
