"""The estimate of latency per runtime on widths that it has not seen, and picks measured again in a new process.

    python -m benchmarks.latency                       # all networks and runtimes, some hours on one core
    python -m benchmarks.latency --fit 12 --unseen 6   # a shorter one

Finished pairs of network and runtime are kept and not measured again; `--fresh` starts anew.
"""

import argparse
from pathlib import Path

from benchmarks.common.places import kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.latency.measure import NETWORKS, RUNTIMES, measured
from benchmarks.latency.page import markdown
from cafenet.errors import CafeNetError


def main() -> None:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--fit", type=int, default=24, help="width vectors that the estimate is fitted to")
    parser.add_argument("--unseen", type=int, default=20, help="width vectors that it is judged by")
    parser.add_argument("--picks", type=int, default=10, help="searches whose pick is measured again")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of a measurement")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--output", type=Path, default=kept_results("latency"))
    options = parser.parse_args()
    results = Results(options.output, fresh=options.fresh)
    place = options.output.parent / "estimates"
    for network in options.networks:
        for runtime in options.runtimes:
            name = f"{network} {runtime}"
            if name in results.rows("measured"):
                continue
            print(name, flush=True)
            try:
                row = measured(network, runtime, options, place)
            except CafeNetError as error:  # a runtime that is missing, or lacks an operator
                row = {"problem": str(error)}
            results.add("measured", name, row)
    page_of("latency", options.output).write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
