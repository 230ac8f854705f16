"""Calls of the user's own code: import a file or module, find the factory in it, build the model.

All of it may fail, so every failure names the place and the exception in one sentence.
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

# Traceback frames from these places say nothing about the user's code: the standard library, installed packages and
# this file.
_LIBRARIES = (*{sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib")}, "<frozen", __file__)

_FILE_PREFIX = "cafenet_file_"


@contextlib.contextmanager
def import_source(source: str) -> Iterator[ModuleType]:
    """Import a file `path/to/net.py` or a module `package.nets`.

    While the context lasts, modules beside the file can be imported, too, as if Python ran it.

    Args:
        source: Path of the file, or name of the module.

    Yields:
        The module.

    Raises:
        ModelNameError: If the file or module does not exist, or its import fails.
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
    """Return the files that were imported by path in this process; their classes cannot be unpickled without them.

    Returns:
        The paths.
    """
    return [str(module.__file__) for name, module in sys.modules.items() if name.startswith(_FILE_PREFIX)]


def find_factory(name: str, module: ModuleType, target: str) -> Callable[..., Any]:
    """Find a function or class in a module.

    Args:
        name: Full name that the user gave, for error messages.
        module: The module.
        target: Name of the function or class.

    Returns:
        The function or class.

    Raises:
        ModelNameError: If the module has no such name, or it is not a function or class.
    """
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
    """Call a factory and check that it returns an `nn.Module`.

    Args:
        name: Full name that the user gave, for error messages.
        factory: The function or class.
        kwargs: Its arguments.

    Returns:
        The model.

    Raises:
        ModelNameError: If the call fails or returns something else.
    """
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
    """Import a module by name, or explain why that fails."""
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
    """Import a file by path, or explain why that fails."""
    # The module gets a unique name, so that ./torch.py does not replace torch. It stays in sys.modules, because
    # dataclasses and pickle look classes up there.
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
    """Describe an error, as in `ValueError: no such block (net.py, line 12)`, with the deepest line outside of
    libraries."""
    summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    if isinstance(error, SyntaxError):
        return f"{summary} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f"{summary} ({own[-1].filename}, line {own[-1].lineno})" if own else summary


def _file_of(module: ModuleType) -> str:
    """Return the file of a module, or its name."""
    return getattr(module, "__file__", None) or module.__name__


def _a(value: object) -> str:
    """Return a value's type with an article, for messages."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
