"""Start times of the package and its command, as CPU time beside that of `import torch`.

    python -m benchmarks.startup              # a minute on one core

All start in turn, in processes of their own. Prints the median of the CPU times (user and system) and of the ratios to
`import torch` in the same turn; a ratio varies less than a time where other programs run.
"""

import argparse
import os
import resource
import subprocess
import sys
from statistics import median

TORCH = "import torch"
STARTS = {
    "python alone": ["-c", ""],
    TORCH: ["-c", "import torch"],
    "import torch, cafenet": ["-c", "import torch, cafenet"],
    "import cafenet": ["-c", "import cafenet"],
    "from cafenet import *": ["-c", "from cafenet import *"],
    "cafenet --help": ["-m", "cafenet", "--help"],
    "cafenet --version": ["-m", "cafenet", "--version"],
    "cafenet recipes": ["-m", "cafenet", "recipes"],
    "cafenet run --help": ["-m", "cafenet", "run", "--help"],
}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    for arguments in STARTS.values():  # files are read, bytecode is written
        cpu_seconds(arguments)
    turns = [{name: cpu_seconds(arguments) for name, arguments in STARTS.items()} for _ in range(options.turns)]
    print(f"| start ({options.turns} turns) | CPU seconds | of `{TORCH}` |\n| --- | ---: | ---: |")
    for name in STARTS:
        seconds = median(turn[name] for turn in turns)
        ratio = median(turn[name] / turn[TORCH] for turn in turns)
        print(f"| `{name}` | {seconds:.3f} | {ratio:.2f} |")


def cpu_seconds(arguments: list[str]) -> float:
    """CPU time of Python with these arguments, from its start to its end; with bytecode, as in an installed package."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
