"""Import of torchvision beside a torch that it was not compiled for, such as a CPU-only build.

In this case torchvision's compiled operators do not load, and `import torchvision` fails with "operator
torchvision::nms does not exist": torchvision registers shape functions for `nms` and `qnms` without checking that these
operators were defined (pytorch/vision issues 9077 and 9085). Models and transforms, and timm, torchmetrics and
Lightning on top of them, need neither operator; they only need the import to succeed. `import cafenet` therefore puts a
finder in front of Python's own (`mend_torchvision`), which costs nothing until torchvision is imported. If that import
fails because of these two operators, their schemas are defined, without kernels, and the import is repeated. Box
suppression itself stays unavailable and raises an error if it is called.
"""

import functools
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from cafenet.common.extras import install
from cafenet.errors import CafeNetError

if TYPE_CHECKING:  # torch takes long to import, and `import cafenet` reads this file
    import torch

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision() -> ModuleType:
    """Imports torchvision, or says how to install it.

    Returns:
        The module.

    Raises:
        CafeNetError: If torchvision is not installed.
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise CafeNetError(f"torchvision must be installed, but it is not; {install('vision')}") from error


def mend_torchvision() -> None:
    """Makes `import torchvision` work from now on, also where its compiled operators do not load.

    A second call does nothing.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def lacks_compiled_operators() -> bool:
    """Whether the operators of an imported torchvision were only declared here, because it belongs to another torch.

    Returns:
        True if box suppression and other compiled operators are unavailable.
    """
    return _define_missing_ops.cache_info().currsize > 0


class _Finder:
    """Finds torchvision as Python does, but with a loader that survives missing operators."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of torchvision; every other module is left to Python's finders."""
        spec = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs a module again with the missing operators declared, if that is what it failed by."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code."""
        try:
            super().exec_module(module)
        except RuntimeError:
            if not _missing_ops():
                raise
            _define_missing_ops()
            super().exec_module(module)


def _missing_ops() -> list[str]:
    import torch

    return [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]


@functools.cache  # the definitions live as long as the Library object, which the cache keeps alive
def _define_missing_ops() -> "torch.library.Library":
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _missing_ops():
        library.define(name + _SCHEMAS[name])
    return library
