"""Do supernets rank widths as training from scratch does? Labels once, then supernets; every piece is kept.

    python -m benchmarks.ranking labels --network plain --shard 0/2      # some hours on one core in all
    python -m benchmarks.ranking long-labels --network plain             # 30 and 100 epochs of all images: days
    python -m benchmarks.ranking supernets --network plain --ways fixed "r=1 race" --seeds 4
    python -m benchmarks.ranking trends --seeds 8                        # which widths a trend should be fitted to
    python -m benchmarks.ranking picks --seeds 8                         # whole searches, judged by the labels
    python -m benchmarks.ranking freedom --seeds 8                       # candidates drawn, compared or averaged
    python -m benchmarks.ranking page

Results go to benchmarks/ranking/results.json after every training, also from several processes at once, and
docs/ranking.md is made of them.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.ranking.freedom import measure_freedom
from benchmarks.ranking.labels import LONG_EPOCHS, label, label_long
from benchmarks.ranking.networks import BUILDERS, NUM_WIDTHS, task
from benchmarks.ranking.page import markdown
from benchmarks.ranking.picks import SEARCHES, search_all
from benchmarks.ranking.supernets import WAYS, rank
from benchmarks.ranking.trends import fit_trends

STEPS = ("labels", "long-labels", "supernets", "trends", "picks", "freedom", "page")


def main() -> None:
    """Do what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=STEPS, default=["labels", "supernets", "trends", "picks"])
    parser.add_argument("--network", choices=sorted(BUILDERS), nargs="+", default=sorted(BUILDERS))
    parser.add_argument("--label-seeds", type=int, default=2, help="trainings of each width (%(default)s)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", choices=LONG_EPOCHS, default=LONG_EPOCHS, help="epochs of long labels"
    )
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--searches", nargs="+", choices=list(SEARCHES), default=list(SEARCHES), metavar="SEARCH")
    parser.add_argument("--seeds", type=int, default=16, help="supernets of each way (%(default)s)")
    parser.add_argument("--shard", default="0/1", help="I/N: only every N-th width or seed, from I on")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-ranking", help="of full networks")
    parser.add_argument("--output", type=Path, default=kept_results("ranking"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    first, step = (int(part) for part in options.shard.split("/"))
    for name in options.network:
        if "labels" in options.steps:
            label(results, task(name), range(options.label_seeds), range(NUM_WIDTHS)[first::step])
        if "long-labels" in options.steps:
            label_long(results, task(name), range(options.label_seeds), options.lengths, slice(first, None, step))
        if "supernets" in options.steps:
            rank(results, task(name), options.ways, range(options.seeds)[first::step], options.cache)
        if "trends" in options.steps:
            fit_trends(results, task(name), range(options.seeds)[first::step], options.cache)
        if "picks" in options.steps:
            search_all(results, task(name), options.searches, range(options.seeds)[first::step], options.cache)
        if "freedom" in options.steps:
            measure_freedom(results, task(name), range(options.seeds)[first::step], options.cache)
    (ROOT / "docs" / "ranking.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
