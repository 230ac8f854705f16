"""Data sets by name.

A name is `fashion`, which is always available, or `KIND:PATH`:

    fashion    npz:data/cifar10    cifar10:data    cifar100:data    folder:data/imagenet    celeba:data/celeba
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cafenet.common.limits import IMAGE_PIXELS
from cafenet.common.options import check_arguments
from cafenet.common.suggestions import did_you_mean
from cafenet.data.celeba import load_celeba
from cafenet.data.datasets import DataSets
from cafenet.data.fashion import fashion_mnist
from cafenet.data.npz import load_npz
from cafenet.data.torchvision_sets import load_cifar10, load_cifar100, load_image_folder
from cafenet.errors import DataError, first_line

_KINDS: dict[str, Callable[..., DataSets]] = {
    "npz": load_npz,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "folder": load_image_folder,
    "celeba": load_celeba,
}


def load_data(name: str, **options: Any) -> DataSets:
    """Read a data set by name.

    Args:
        name: "fashion", or a kind and a path, for example "npz:data/cifar10", "folder:data/imagenet" or "celeba:faces".
        **options: Options of the reader, as in `load_data("celeba:faces", size=(64, 48))`.

    Returns:
        The training and the test set.

    Raises:
        DataError: If the name or an option is unknown, or the data cannot be read.

    Example:
        >>> from cafenet.data import load_data
        >>> load_data("fashion").test.classes[0]
        'T-shirt/top'
    """
    check_arguments(DataError, name=(name, str))
    kind, _, path = name.partition(":")
    if name == "fashion" and not options:
        return fashion_mnist()
    if kind in _KINDS and path:
        known = [option for option in inspect.signature(_KINDS[kind]).parameters if option not in ("path", "root")]
        unknown = [option for option in options if option not in known]
        if unknown:
            raise DataError(f"{kind} data takes the options {', '.join(known)}, but got {', '.join(unknown)}")
        # YAML writes a size as a list
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        _check_options(options)
        try:
            return _KINDS[kind](path, **options)
        except (OSError, ValueError) as error:  # ValueError: a path that contains a null character
            reason = getattr(error, "strerror", None) or first_line(error)
            raise DataError(f"{kind} data must be readable, but {path[:80]!r} is not: {reason}") from error
    forms = ", ".join(["fashion", *(f"{known}:PATH" for known in _KINDS)])
    if name == "fashion":
        raise DataError(f"fashion takes no options, but got {', '.join(options)}")
    near = "" if kind in _KINDS else did_you_mean(kind, ["fashion", *_KINDS], most=1, cutoff=0.6)
    raise DataError(f"a data set must be one of {forms}, but got {name!r}" + (f"; {near}" if near else ""))


def _check_options(options: Mapping[str, Any]) -> None:
    """Check values of options before a reader uses them."""
    size = options.get("size")
    if size is not None and not (_is_row(size, 2, int) and min(size) > 0):
        raise DataError(f"size must be height and width, as [64, 48], but is {_shown(size)}")
    if size is not None:
        IMAGE_PIXELS.check(size[0] * size[1], f"the pixels of size {_shown(size)}", DataError)
    for name in ("mean", "std"):
        if name in options and not _is_row(options[name], 3, (int, float)):
            raise DataError(f"{name} must have a number for each of 3 channels, but is {_shown(options[name])}")
    if not all(value > 0 for value in options.get("std", ())):
        raise DataError(f"std must be above 0, but is {_shown(options['std'])}")
    limit = options.get("cache_limit_bytes", 0)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit < 0:
        raise DataError(f"cache_limit_bytes must be a number of bytes, 0 or more, but is {limit!r}")
    if not isinstance(options.get("test_folder", ""), str):
        raise DataError(f"test_folder must be a name, but is {options['test_folder']!r}")


def _is_row(value: Any, length: int, kind: type | tuple[type, ...]) -> bool:
    """Return whether a value is a tuple of this length and kind."""
    is_row = isinstance(value, tuple) and len(value) == length
    return is_row and all(isinstance(each, kind) and not isinstance(each, bool) for each in value)


def _shown(value: Any) -> str:
    """Return a value as YAML would show it."""
    return repr(list(value) if isinstance(value, tuple) else value)
