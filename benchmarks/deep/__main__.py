"""The cost of large networks: a trace against a forward, a pick against its candidates, the check run against a trace.

    python -m benchmarks.deep                 # some minutes on one core
    python -m benchmarks.deep --groups 100 --models swin_v2_t

All figures are ratios of CPU times that were taken in turn in one process, medians of `--turns`.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from cafenet import Supernet, WidthSpace, trace
from cafenet.common.torchvision_compat import import_torchvision
from cafenet.detection.torchvision_ops import working_ops
from cafenet.models import default_input_size, load_model
from cafenet.space.bins import uniform_bins
from cafenet.supernet.candidate_choice import Exact
from cafenet.supernet.sharing import LocallyFree
from cafenet.tracing.tracer import find_space

MODELS = (
    *("swin_v2_t", "swin_t", "maxvit_t", "timm:edgenext_small", "retinanet_resnet50_fpn", "fcos_resnet50_fpn"),
    *("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"),
)
_IMAGE = torch.zeros(1, 3, 8, 8)


class Block(nn.Module):
    """Two convolutions beside a shortcut: one group of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


def residual(num_groups: int, channels: int = 16) -> nn.Module:
    """A network of that many groups: its stream, and one in each block."""
    blocks = [Block(channels) for _ in range(num_groups - 1)]
    stem, head = nn.Conv2d(3, channels, 3, padding=1), nn.Linear(channels, 10)
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).eval()


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def show_deep(num_groups: int, batch_size: int, turns: int) -> None:
    """Print what tracing and picking cost on a network of that many groups."""
    model = residual(num_groups)
    spaces: list[WidthSpace] = []
    with torch.no_grad():
        model(_IMAGE)
        pairs = [
            (seconds(lambda: spaces.append(trace(model, _IMAGE))), seconds(lambda: model(_IMAGE))) for _ in range(turns)
        ]
    picks = pick_ratio(model, spaces[0], batch_size, turns)
    print(
        f"{num_groups} groups: trace {median(traced for traced, _ in pairs):.2f} s, "
        f"{median(traced / bare for traced, bare in pairs):.0f} forwards of one image; "
        f"pick {picks:.2f} forwards of its candidates at batch {batch_size}",
        flush=True,
    )


def pick_ratio(model: nn.Module, space: WidthSpace, batch_size: int, turns: int) -> float:
    """A pick (every candidate on the whole batch) against the forwards of the same candidates, extracted."""
    bins = uniform_bins(space, 8)
    supernet = Supernet(model, space, bins, LocallyFree(1), choice=Exact()).train()
    bin_counts = (bins.num_bins + 1) // 2
    batch = torch.randn(batch_size, 3, 8, 8), torch.randint(10, (batch_size,))
    slim = [
        space.extract(channels={g.name: u for g, u in zip(space.groups, each.units, strict=True)}).train()
        for each in supernet.candidates(bin_counts)
    ]
    loss = nn.functional.cross_entropy

    @torch.no_grad()
    def forwards() -> None:
        for each in slim:
            loss(each(batch[0]), batch[1])

    def pick() -> None:
        supernet.pick([batch], loss, bin_counts=bin_counts)

    forwards(), pick()
    return median(seconds(pick) / seconds(forwards) for _ in range(turns))


def show_check(name: str, turns: int) -> None:
    """Print what the check run of a model of torchvision or timm costs."""
    model, inputs = timm_model(name) if name.startswith("timm:") else torchvision_model(name)
    find_space(model, inputs)
    plain = [seconds(lambda: find_space(model, inputs, verify=False)) for _ in range(turns)]
    checked = [seconds(lambda: find_space(model, inputs)) for _ in range(turns)]
    ratio = median(whole / part - 1 for whole, part in zip(checked, plain, strict=True))
    space = find_space(model, inputs)
    print(f"{name}: {len(space.groups)} groups, check run {ratio:.2f} traces", flush=True)


def torchvision_model(name: str) -> tuple[nn.Module, object]:
    """The model with random weights and its example inputs; a detector gets a small image and finds something on it."""
    models = import_torchvision().models
    torch.manual_seed(0)
    if not name.endswith("_fpn"):
        return models.get_model(name, weights=None).eval(), torch.zeros(1, 3, 224, 224)
    model = models.get_model(name, weights=None, weights_backbone=None).eval()
    model.transform.min_size, model.transform.max_size = (128,), 128
    if hasattr(model, "score_thresh"):
        model.score_thresh = 0.0
    return model, ([torch.rand(3, 128, 128)],)


def timm_model(name: str) -> tuple[nn.Module, object]:
    """The model with random weights and an example image."""
    torch.manual_seed(0)
    return load_model(name).eval(), torch.zeros(1, *default_input_size(name))


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, nargs="*", default=[100, 400, 1200])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for num_groups in options.groups:
        show_deep(num_groups, options.batch_size, options.turns)
    with working_ops():
        for name in options.models:
            show_check(name, options.turns)


if __name__ == "__main__":
    main()
