"""Times of steps, quality of choices and peak memory of one network, in one run."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

import cafenet
from benchmarks.common.places import CIFAR
from benchmarks.efficiency.networks import mobilenet_v2, vgg
from cafenet.modules.batches import Batch
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.candidate_choice import Exact, Race
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet


@dataclass(frozen=True)
class Network:
    """A network that is measured, and the options of its training meanwhile."""

    build: Callable[[], nn.Module]
    image_size: int
    beta: float
    """Channels in a bin; fewer if narrow layers would have too few bins for a zone."""
    lr: float


NETWORKS = {"vgg": Network(vgg, 32, 1.0, 0.05), "mobilenet_v2": Network(mobilenet_v2, 16, 0.25, 0.02)}


def images(name: str) -> tuple[Tensor, Tensor]:
    """CIFAR-10 at the network's size, or noise where the data is absent (times stay right, quality does not)."""
    size = NETWORKS[name].image_size
    if not (CIFAR / "train.npz").exists():
        print(f"{CIFAR} is absent: using noise")
        return torch.randn(4096, 3, size, size), torch.randint(10, (4096,))
    data = np.load(CIFAR / "train.npz")
    pixels = torch.from_numpy(data["images"]).permute(0, 3, 1, 2).float() / 255
    return avg_pool2d((pixels - 0.47) / 0.25, 32 // size), torch.from_numpy(data["labels"])


def build(name: str, r: int) -> Supernet:
    network = NETWORKS[name]
    torch.manual_seed(0)
    model = network.build()
    space = cafenet.trace(model, torch.randn(1, 3, network.image_size, network.image_size))
    supernet = Supernet(model, space, flops_sensitive_bins(space, network.beta), LocallyFree(r), choice=Race())
    return supernet.train()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def measure(name: str, r: int, steps: int, exact_every: int, batch_size: int) -> dict[str, Any]:
    """Train with the race; beside every step, time an r = 0 step of the same width, and now and then the exact way."""
    supernet = build(name, r)
    pixels, labels = images(name)
    generator = torch.Generator().manual_seed(r)
    optimizer = torch.optim.SGD(supernet.parameters(), lr=NETWORKS[name].lr, momentum=0.9, weight_decay=1e-4)
    raced, exact, arithmetic, forward, lost, gaps, losses = [], [], [], [], [], [], []
    for number in range(steps):
        index = torch.randint(len(pixels), (batch_size,), generator=generator)
        batch = (pixels[index], labels[index])
        candidates = supernet.candidates(supernet.sample())
        zero_seconds, _ = timed(lambda b=batch, c=candidates: backward(supernet, b, c[0]))
        optimizer.zero_grad()
        race_seconds, (chosen, _) = timed(lambda b=batch, c=candidates: choose(supernet, Race(), b, c))
        if number % exact_every == 0:
            forward_seconds, _ = timed(lambda b=batch, c=candidates: supernet.trial_losses(b, c[:1], cross_entropy))
            exact_seconds, (_, seen) = timed(lambda b=batch, c=candidates: choose(supernet, Exact(), b, c))
            if max(seen) > min(seen):
                lost.append(seen[chosen] - min(seen))
                gaps.append(mean(seen) - min(seen))
        own_seconds, loss = timed(lambda b=batch, c=candidates[chosen]: backward(supernet, b, c))
        update_seconds, _ = timed(optimizer.step)
        optimizer.zero_grad()
        losses.append(loss)
        zero_step, own_step = zero_seconds + update_seconds, own_seconds + update_seconds
        raced.append((race_seconds + own_step) / zero_step)
        if number % exact_every == 0:
            exact.append((exact_seconds + own_step) / zero_step)
            arithmetic.append((len(candidates) * forward_seconds + zero_step) / zero_step)
            forward.append(forward_seconds / zero_step)
    quality = [each / gap for each, gap in zip(lost, gaps, strict=True)]
    return {
        "network": name,
        "r": r,
        "candidates": LocallyFree(r).num_offset_sets,
        "race_ratio": median(raced),
        "exact_ratio": median(exact),
        "arithmetic_ratio": median(arithmetic),
        "exact_over_arithmetic": median(e / a for e, a in zip(exact, arithmetic, strict=True)),
        "forward_share": median(forward),
        "race_quality": mean(quality),
        "race_quality_of_sums": sum(lost) / sum(gaps),
        "race_quality_sem": float(np.std(quality, ddof=1) / len(quality) ** 0.5) if len(quality) > 1 else None,
        "num_quality": len(quality),
        "first_loss": mean(losses[:5]),
        "last_loss": mean(losses[-5:]),
        "steps": steps,
    }


def backward(supernet: Supernet, batch: Batch, subnet: Any) -> float:
    loss = cross_entropy(supernet(batch[0], subnet), batch[1])
    loss.backward()
    return loss.item()


def choose(supernet: Supernet, choice: Race | Exact, batch: Batch, candidates: list[Any]) -> tuple[int, list[float]]:
    supernet.choice = choice
    return supernet.choose([batch], candidates, cross_entropy)


def full_width_ratio(name: str, batch_size: int) -> float:
    """An r = 0 step at full width against a plain training step of the user's own model, alternating."""
    supernet = build(name, 0)
    model = NETWORKS[name].build().train()
    pixels, labels = images(name)
    x, y = pixels[:batch_size], labels[:batch_size]
    full, ratios = supernet.full(), []
    for _ in range(7):
        plain_seconds, _ = timed(lambda: cross_entropy(model(x), y).backward())
        own_seconds, _ = timed(lambda: cross_entropy(supernet(x, full), y).backward())
        ratios.append(own_seconds / plain_seconds)
    return median(ratios[1:])


def peak_memory(name: str, batch_size: int) -> dict[str, int]:
    """Peak resident memory of a process that takes two steps, in MB."""
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for label, r, choice in (("r=0", 0, Race()), ("r=3 race", 3, Race()), ("r=3 exact", 3, Exact())):
        with context.Pool(1) as pool:
            peaks[label] = pool.apply(_two_steps, (name, r, choice, batch_size))
    return peaks


def _two_steps(name: str, r: int, choice: Race | Exact, batch_size: int) -> int:
    torch.set_num_threads(1)
    supernet = build(name, r)
    supernet.choice = choice
    size = NETWORKS[name].image_size
    batch = (torch.randn(batch_size, 3, size, size), torch.randint(10, (batch_size,)))
    for _ in range(2):
        supernet.step(batch, cross_entropy).loss.backward()
    status = Path("/proc/self/status").read_text()  # not getrusage: its peak includes the parent's at the fork
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
