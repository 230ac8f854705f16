"""The gain of keeping compiled kernels: CPU time of training a supernet, with oneDNN's limit and with CafeNet's.

    python -m benchmarks.kernels              # some minutes on one core

Both run in turn, in processes of their own, since oneDNN reads its limit once. Prints the median ratio of the times.
"""

import argparse
import os
import subprocess
import sys
from statistics import median

ONEDNNS_OWN = "1024"
VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def main() -> None:
    """Measure all, or one training in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("plain", "residual"), nargs="+", default=["plain", "residual"])
    parser.add_argument(
        "--ways", nargs="+", default=["fixed", "r=1 race", "r=1 exact"], help="as in benchmarks.ranking"
    )
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(seconds(options.network[0], options.ways[0], options.epochs))
        return
    for network in options.network:
        for way in options.ways:
            turns = [
                [timed(network, way, options.epochs, limit) for limit in (ONEDNNS_OWN, None)]
                for _ in range(options.turns)
            ]
            ratio = median(before / after for before, after in turns)
            print(f"{network}, {way}: {ratio:.2f} times as fast ({options.turns} turns: {turns})", flush=True)


def timed(network: str, way: str, epochs: float, limit: str | None) -> float:
    """CPU time of one training in a process of its own; the limit None leaves it to CafeNet."""
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
    variables |= {"OMP_NUM_THREADS": "1"} | ({} if limit is None else {VARIABLE: limit})
    command = [sys.executable, "-m", "benchmarks.kernels", "--one", "--network", network, "--ways", way]
    command += ["--epochs", str(epochs)]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def seconds(network: str, way: str, epochs: float) -> float:
    """CPU time of a supernet's training, from fresh weights."""
    import time
    from dataclasses import replace

    from benchmarks.ranking.labels import AUGMENTATION, BATCH_SIZE
    from benchmarks.ranking.networks import task
    from benchmarks.ranking.supernets import NEAR, WAYS
    from cafenet.data import train_loader
    from cafenet.supernet.build import build_supernet
    from cafenet.supernet.train import train_supernet
    from cafenet.training.config import TrainConfig

    work = task(network)
    config = replace(WAYS[way].supernet, sort_by_importance=False)
    supernet = build_supernet(work.build(), work.space, config)
    training = TrainConfig(epochs=epochs, batch_size=BATCH_SIZE)
    batches = train_loader(work.train, BATCH_SIZE, AUGMENTATION)
    start = time.process_time()
    train_supernet(supernet, batches, training, sampling=NEAR, quiet=True)
    return round(time.process_time() - start, 1)


if __name__ == "__main__":
    main()
