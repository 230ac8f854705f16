"""Calling the user's own code: import a file or module, find the factory in it, build the model.

All of it may fail in the user's hands, so every failure names the place and the exception, in one sentence.
"""

import contextlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from cafenet.common.suggestions import near_names
from cafenet.errors import CafeNetError, ModelNameError

# Where frames of a traceback say nothing about the user's own code: the standard library, what is installed, this file.
_LIBRARIES = (*{sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib")}, "<frozen", __file__)

_FILE_PREFIX = "cafenet_file_"


@contextlib.contextmanager
def import_source(source: str) -> Iterator[ModuleType]:
    """Import a file `path/to/net.py` or a module `package.nets`.

    While the context lasts, a file's neighbours can be imported too, as if Python ran it.
    """
    if not source.endswith(".py"):
        yield _import_module(source)
        return
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        raise ModelNameError(f"the file of a model must exist, but there is no {source}")
    sys.path.insert(0, str(path.parent))
    try:
        yield _import_file(path)
    finally:
        sys.path.remove(str(path.parent))


def imported_files() -> list[str]:
    """The files that were imported by path in this process; what they define cannot be unpickled without them."""
    return [str(module.__file__) for name, module in sys.modules.items() if name.startswith(_FILE_PREFIX)]


def find_factory(name: str, module: ModuleType, target: str) -> Callable[..., Any]:
    """Return the function or class `target` of `module`."""
    if not hasattr(module, target):
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = near_names(target, callables, most=5, cutoff=0.6) or sorted(callables)[:5]
        remedy = f"; it has {', '.join(near)}" if near else ""
        raise ModelNameError(f"{_file_of(module)} has no {target!r}, as {name} asks for{remedy}")
    factory = getattr(module, target)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ModelNameError(
            f"{name} must be a function or class that returns an nn.Module, but is {_a(factory)}; "
            f"wrap it: def build(): return {target}"
        )
    return factory  # type: ignore[no-any-return]


def build(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> nn.Module:
    """Call `factory(**kwargs)` and make sure that it returns an `nn.Module`."""
    try:
        model = factory(**kwargs)
    except CafeNetError:
        raise
    except Exception as error:
        raise ModelNameError(f"{name} could not be built: {_describe(error)}") from error
    if not isinstance(model, nn.Module):
        raise ModelNameError(f"{name} must return an nn.Module, but returned {_a(model)}")
    return model


def _import_module(source: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source}.".startswith(f"{error.name}."):
            raise ModelNameError(f"{source} could not be imported: {_describe(error)}") from error
        raise ModelNameError(
            f"there is no module {error.name!r}; install it, or name a file instead, as in ./net.py:build"
        ) from error
    except Exception as error:
        raise ModelNameError(f"{source} could not be imported: {_describe(error)}") from error


def _import_file(path: Path) -> ModuleType:
    # A name of its own, so that ./torch.py does not replace torch. It stays in sys.modules, as classes look themselves
    # up there (dataclasses, pickle).
    module_name = f"{_FILE_PREFIX}{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script without a __main__ guard may parse our command line and exit
        del sys.modules[module_name]
        raise ModelNameError(f"{path} could not be imported: {_describe(error)}") from error
    return module


def _describe(error: BaseException) -> str:
    """`ValueError: no such block (net.py, line 12)`, the line being the deepest one that is not a library's."""
    summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    if isinstance(error, SyntaxError):
        return f"{summary} ({error.filename}, line {error.lineno})"
    if "torchvision::nms" in summary:
        summary += (
            "; call cafenet.common.torchvision_compat.import_torchvision() before this import, its module says why"
        )
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f"{summary} ({own[-1].filename}, line {own[-1].lineno})" if own else summary


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def _a(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
