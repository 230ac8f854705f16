"""The results of three tiny jobs, to be compared with those of another revision: nothing may differ.

    git worktree add /tmp/earlier v0.1.0
    PYTHONPATH=/tmp/earlier/src:. python -m tools.docs.same_results --save earlier.json
    PYTHONPATH=src:. python -m tools.docs.same_results --compare earlier.json --renamed fixed-pattern fixed-sharing

The jobs are a search in two stages, a run with all baselines and a comparison of two detectors (`tiny_jobs.py`).
Widths, scores and accuracies are compared as they are, all tensors of all checkpoints and models by digests. Numbers
differ from one machine to another and between versions of PyTorch, so that a file is of use only where it was made.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import cafenet
from tools.docs.tiny_jobs import tiny_detection, tiny_run, tiny_search

JOBS: dict[str, Callable[[Path], Any]] = {"search": tiny_search, "run": tiny_run, "detection": tiny_detection}
TABLES = ("results.json", "entries.json", "result-*.json", "evaluation.json", "detections.json")
"""Files whose values are compared."""
_CLOCK = ("latency", "seconds", "date", "time", "version", "digest")
"""Beginnings of the keys of values that the clock or the environment decides."""


def main() -> int:
    """Save or compare the results; return 1 if some differ."""
    parser = argparse.ArgumentParser(description="Results of three tiny jobs, beside those of another revision.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--save", type=Path, metavar="FILE", help="write the results")
    what.add_argument("--compare", type=Path, metavar="FILE", help="compare with results that were written before")
    parser.add_argument(
        *("--renamed", "-r"),
        nargs=2,
        action="append",
        default=[],
        metavar=("OLD", "NEW"),
        help="words of the earlier file",
    )
    options = parser.parse_args()
    found = results()
    if options.save:
        options.save.write_text(json.dumps(found, indent=1, sort_keys=True))
        print(f"{len(found)} values of {Path(cafenet.__file__).parent} are in {options.save}")
        return 0
    earlier = options.compare.read_text()
    for old, new in options.renamed:
        earlier = earlier.replace(old, new)
    differing = list(differences(json.loads(earlier), found))
    print("\n".join([f"{len(found)} values, {len(differing)} of them differ", *differing]))
    return 1 if differing else 0


def results() -> dict[str, Any]:
    """All values by their place: `run/results.json/rows/0/accuracies/0`, `search/models/.../slim.pt/0.weight`."""
    torch.set_num_threads(1)
    found = {}
    for name, job in JOBS.items():
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job(Path(place))
            found.update(values_in(Path(place), name))
    return found


def values_in(directory: Path, name: str) -> dict[str, Any]:
    """The values of all tables and the digests of all tensors in a directory."""
    found = {}
    for path in sorted(path for table in TABLES for path in directory.rglob(table)):
        content = json.loads(path.read_text())
        found.update(leaves(content, f"{name}/{path.relative_to(directory)}"))
    for path in sorted(directory.rglob("*.pt")):
        content = torch.load(path, map_location="cpu", weights_only=True)
        found.update(leaves(content, f"{name}/{path.relative_to(directory)}"))
    return {place: value for place, value in found.items() if str(directory) not in str(value)}


def leaves(content: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each number, text and tensor with its place; a tensor as its digest."""
    if isinstance(content, dict):
        for key, value in content.items():
            if not str(key).startswith(_CLOCK):
                yield from leaves(value, f"{place}/{key}")
    elif isinstance(content, (list, tuple)):
        for number, value in enumerate(content):
            yield from leaves(value, f"{place}/{number}")
    elif isinstance(content, torch.Tensor):
        plain = content.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        yield place, f"{list(content.shape)} {hashlib.sha256(plain).hexdigest()[:16]}"
    elif content is None or isinstance(content, (bool, int, float, str)):
        yield place, content


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """One line for each value that is missing, new or another one."""
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place, "nothing"), after.get(place, "nothing")
        if old != new:
            yield f"{place}: {old} -> {new}"


if __name__ == "__main__":
    sys.exit(main())
