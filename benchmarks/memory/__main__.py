"""The gain of keeping freed memory: times of a training step at 224x224, with glibc's way and with CafeNet's.

    python -m benchmarks.memory               # a minute or two on one core

Each runs in a process of its own, plain PyTorch and a supernet, in turn.
"""

import argparse
import os
import resource
import subprocess
import sys

GLIBCS_OWN = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}
"""Setting of glibc's own number: nothing changes, but CafeNet takes it for the user's and leaves malloc alone.

The MALLOC_..._ variables would not do: each of them ends glibc's own way to adapt its thresholds.
"""


def main() -> None:
    """Measure all, or one training in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--one", choices=("plain", "supernet"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure(options.one, options.batch_size, options.steps))
        return
    for what in ("plain", "supernet"):
        for who, variables in (("glibc's own", GLIBCS_OWN), ("kept", {})):
            command = [sys.executable, "-m", "benchmarks.memory", "--one", what]
            command += ["--batch-size", str(options.batch_size), "--steps", str(options.steps)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            print(f"{what}, {who}: {ran.stdout.strip()}", flush=True)


def measure(what: str, batch_size: int, steps: int) -> str:
    """Times of a step of MobileNetV2, and the process's peak."""
    import torch
    from torch import nn

    from cafenet import Supernet, load_model, trace
    from cafenet.space.bins import uniform_bins
    from cafenet.supernet.sharing import LocallyFree

    torch.manual_seed(0)
    model = load_model("torchvision:mobilenet_v2", num_classes=10).train()
    batch = torch.randn(batch_size, 3, 224, 224), torch.randint(10, (batch_size,))
    loss = nn.functional.cross_entropy
    if what == "supernet":
        space = trace(model, batch[0][:1])
        supernet = Supernet(model, space, uniform_bins(space, 8), LocallyFree(0)).train()

    def step() -> None:
        found = supernet.step(batch, loss).loss if what == "supernet" else loss(model(batch[0]), batch[1])
        found.backward()

    step()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(steps):
        step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = (after.ru_utime - before.ru_utime) / steps, (after.ru_stime - before.ru_stime) / steps
    return f"{user:.2f} s user and {system:.2f} s system a step, {after.ru_maxrss / 2**20:.1f} GB at the peak"


if __name__ == "__main__":
    main()
