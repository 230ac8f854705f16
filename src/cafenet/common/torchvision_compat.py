"""Import of torchvision beside a torch that it was not compiled for, such as a CPU-only build.

In this case torchvision's compiled operators do not load, and `import torchvision` fails with "operator
torchvision::nms does not exist": torchvision registers shape functions for `nms` and `qnms` without checking that these
operators were defined (pytorch/vision issues 9077 and 9085). Models and transforms, and timm on top of them, need
neither operator; they only need the import to succeed. If the import fails because of these two operators, their
schemas are therefore defined, without kernels, and the import is repeated. Box suppression itself stays unavailable and
raises an error if it is called.
"""

import functools
import importlib
from types import ModuleType

import torch

from cafenet.common.extras import install
from cafenet.errors import CafeNetError

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision() -> ModuleType:
    """Imports torchvision, and defines its missing operator schemas if the usual import fails.

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
    except RuntimeError:
        if not _missing_ops():
            raise
    _define_missing_ops()
    return importlib.import_module("torchvision")


def _missing_ops() -> list[str]:
    return [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]


@functools.cache  # the definitions live as long as the Library object, which the cache keeps alive
def _define_missing_ops() -> torch.library.Library:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _missing_ops():
        library.define(name + _SCHEMAS[name])
    return library
