"""From a name to a training and a test set.

A name is `fashion`, which is always there, or `KIND:PATH`:

    fashion    npz:data/cifar10    cifar10:data    cifar100:data    folder:data/imagenet    celeba:data/celeba
"""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from cafenet.data.celeba import load_celeba
from cafenet.data.datasets import DataSets
from cafenet.data.fashion import fashion_mnist
from cafenet.data.folders import load_cifar10, load_cifar100, load_image_folder
from cafenet.data.npz import load_npz
from cafenet.errors import DataError

_KINDS: dict[str, Callable[..., DataSets]] = {
    "npz": load_npz,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "folder": load_image_folder,
    "celeba": load_celeba,
}


def load_data(name: str, **options: Any) -> DataSets:
    """Read the data set called `name`; options go to its reader, as in `load_data("celeba:faces", size=(64, 48))`."""
    kind, _, path = name.partition(":")
    if name == "fashion" and not options:
        return fashion_mnist()
    if kind in _KINDS and path:
        known = [option for option in inspect.signature(_KINDS[kind]).parameters if option not in ("path", "root")]
        unknown = [option for option in options if option not in known]
        if unknown:
            raise DataError(f"{kind} data takes the options {', '.join(known)}, but got {', '.join(unknown)}")
        # lists are how YAML writes a size
        return _KINDS[kind](path, **{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()})
    forms = ", ".join(["fashion", *(f"{known}:PATH" for known in _KINDS)])
    if name == "fashion":
        raise DataError(f"fashion takes no options, but got {', '.join(options)}")
    near = get_close_matches(kind, ["fashion", *_KINDS], n=1)
    hint = f"; did you mean {near[0]}?" if near and near[0] != kind else ""
    raise DataError(f"a data set must be one of {forms}, but got {name!r}{hint}")
