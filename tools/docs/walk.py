"""The way of one tiny search and one tiny run through the package: files, calls between files, and traced models.

    python -m tools.docs.walk

A file is entered if a function of it is called. A hop is a pair of files of which a function of the first calls one of
the second, directly or through code outside of the package; it counts once, however often it happens.
"""

import inspect
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from torch import nn

import cafenet
from cafenet.modules.tensors import tensors_of
from cafenet.modules.unwrapping import unwrap
from cafenet.tracing.tracer import find_space
from tools.docs.tiny_jobs import tiny_run, tiny_search

PACKAGE = str(Path(cafenet.__file__).parent)
_TRACING = inspect.unwrap(find_space).__code__


@dataclass
class Walk:
    """The files, calls and traces of a piece of work."""

    files: set[str] = field(default_factory=set)
    hops: set[tuple[str, str]] = field(default_factory=set)
    traces: Counter[str] = field(default_factory=Counter)
    """Number of traces of each model, by its shapes and those of its inputs."""

    @property
    def packages(self) -> set[str]:
        """The packages whose files were entered; `errors.py` counts as one."""
        return {_package_of(file) for file in self.files}

    @property
    def package_hops(self) -> set[tuple[str, str]]:
        """Pairs of packages between which there is a hop."""
        pairs = {(_package_of(caller), _package_of(called)) for caller, called in self.hops}
        return {pair for pair in pairs if pair[0] != pair[1]}

    @property
    def most_traces(self) -> int:
        """Number of traces of the model that was traced most often."""
        return max(self.traces.values(), default=0)


def main() -> None:
    """Print the figures."""
    for name, work in (("search", tiny_search), ("run", tiny_run)):
        walk = walked(work)
        print(f"{name}: {len(walk.files)} files, {len(walk.hops)} hops between files")
        print(f"  {len(walk.packages)} packages, {len(walk.package_hops)} hops between packages")
        num_traces = sum(walk.traces.values())
        print(f"  {num_traces} traces of {len(walk.traces)} shapes, at most {walk.most_traces} of one")


def walked(work: Callable[[Path], Any]) -> Walk:
    """The way of a piece of work that is given an empty directory."""
    with tempfile.TemporaryDirectory() as place, _watched() as walk, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work(Path(place))
    return walk


@contextmanager
def _watched() -> Iterator[Walk]:
    """Note every call inside the block."""
    walk = Walk()

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE) or frame.f_code.co_name == "<module>":
            return
        walk.files.add(file)
        caller = _nearest(frame.f_back)
        if caller not in (None, file):
            walk.hops.add((str(caller), file))
        if frame.f_code is _TRACING:
            walk.traces[_shapes(frame.f_locals["model"], frame.f_locals["example_inputs"])] += 1

    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def _package_of(file: str) -> str:
    """The first part of the path inside the package: `space` for `space/bins.py`."""
    return Path(file).relative_to(PACKAGE).parts[0]


def _nearest(frame: FrameType | None) -> str | None:
    """The file of the innermost call that is of the package and not the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return None if frame.f_code.co_name == "<module>" else frame.f_code.co_filename
        frame = frame.f_back
    return None


def _shapes(model: nn.Module, example_inputs: Any) -> str:
    """The shapes of a model's tensors and of its inputs."""
    shapes = [(name, tuple(tensor.shape)) for name, tensor in unwrap(model).named_parameters()]
    return repr((shapes, [tuple(tensor.shape) for tensor in tensors_of(example_inputs)]))


if __name__ == "__main__":
    main()
