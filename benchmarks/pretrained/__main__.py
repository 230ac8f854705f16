"""The gain of an importance-sorted start: a pretrained CNN's widths before and after sorting, and a short training.

    python -m benchmarks.pretrained

A small CNN is trained on CIFAR-10. Then, for random widths: the loss of its leading channels as they are, and after
sort_by_importance, with batch norm in train mode on the same batch; and the mean loss of sampled widths over the last
steps of a supernet training that starts from fresh weights, from the pretrained ones, and from the sorted ones. Three
seeds; the losses go to benchmarks/pretrained/results.json and the table to docs/pretrained.md.
"""

import argparse
import json
from statistics import mean

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy
from torch.utils.data import TensorDataset

import cafenet
from benchmarks.common.places import CIFAR, kept_results, page_of
from benchmarks.efficiency.networks import vgg
from benchmarks.pretrained.page import markdown
from cafenet.space.bins import Bins, flops_sensitive_bins
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretrain-steps", type=int, default=300)
    parser.add_argument("--supernet-steps", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = np.load(CIFAR / "train.npz")
    pixels = avg_pool2d((torch.from_numpy(data["images"]).permute(0, 3, 1, 2).float() / 255 - 0.47) / 0.25, 2)
    labels = torch.from_numpy(data["labels"])
    rows: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        for name, value in one_seed(pixels, labels, seed, args.pretrain_steps, args.supernet_steps).items():
            rows.setdefault(name, []).append(value)
            print(f"seed {seed}: {name}: {value:.3f}", flush=True)
    output, results = kept_results("pretrained"), {"pretrain_steps": args.pretrain_steps, "rows": rows}
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page = page_of("pretrained", output)
    page.write_text(markdown(results), encoding="utf-8")
    print(f"{output} and {page} written")


def one_seed(pixels: Tensor, labels: Tensor, seed: int, pretrain_steps: int, supernet_steps: int) -> dict[str, float]:
    torch.manual_seed(seed)
    fresh = vgg(0.25)
    space = cafenet.trace(fresh, pixels[:1])
    bins = flops_sensitive_bins(space, 1.0)
    trained = pretrain(fresh, pixels, labels, seed, pretrain_steps)
    ordered = sort_by_importance(space, trained)
    starts = {"pretrained": trained, "pretrained, sorted": ordered}
    rows = {f"before training, {name}": sampled_loss(m, space, bins, pixels, labels) for name, m in starts.items()}
    for name, model in {"fresh": fresh, **starts}.items():
        supernet = Supernet(model, space, bins, LocallyFree(1), seed=seed)
        config = TrainConfig(
            epochs=supernet_steps / (len(pixels) // 128), batch_size=128, seed=seed, optimizer=OptimizerConfig(lr=0.05)
        )
        sampling = SamplingConfig(full_share=0.0)
        train_supernet(supernet, TensorDataset(pixels, labels), config, sampling=sampling, quiet=True)
        rows[f"after {supernet_steps} steps, {name}"] = sampled_loss(supernet.model, space, bins, pixels, labels)
    return rows


def pretrain(model: nn.Module, pixels: Tensor, labels: Tensor, seed: int, steps: int) -> nn.Module:
    """Train at full width through the supernet's own loop, with r = 0."""
    space = cafenet.trace(model, pixels[:1])
    supernet = Supernet(model, space, flops_sensitive_bins(space, 1.0), LocallyFree(0)).train()
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        index = torch.randint(len(pixels), (128,), generator=generator)
        cross_entropy(supernet(pixels[index]), labels[index]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return supernet.model


def sampled_loss(model: nn.Module, space: cafenet.WidthSpace, bins: Bins, pixels: Tensor, labels: Tensor) -> float:
    """Mean loss of the leading channels of 20 random width vectors on one batch, batch norm on its statistics."""
    supernet = Supernet(model, space, bins, LocallyFree(0), seed=99).train()
    batch = (pixels[:512], labels[:512])
    subnets = [supernet.candidates(supernet.sample())[0] for _ in range(20)]
    return mean(supernet.trial_losses(batch, subnets, cross_entropy))


if __name__ == "__main__":
    main()
