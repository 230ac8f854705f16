"""The installed packages and the machine, with known incompatibilities and their remedies (`cafenet doctor`)."""

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from cafenet.common.torchvision_compat import lacks_compiled_operators

NEEDED = ("torch", "numpy", "scipy", "optuna", "jsonargparse", "pyyaml", "rich", "fsspec", "shtab")
"""Distributions without which nothing works."""

OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "vision": ("torchvision",),
    "timm": ("timm",),
    "transformers": ("transformers",),
    "lightning": ("lightning",),
    "accelerate": ("accelerate",),
    "board": ("tensorboard",),
    "mlflow": ("mlflow-skinny",),
    "wandb": ("wandb",),
    "dashboard": ("optuna-dashboard",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("openvino", "nncf"),
    "executorch": ("executorch", "torchao"),
    "detection": ("pycocotools",),
    "postgresql": ("psycopg2-binary",),
}
"""Distributions that each extra of CafeNet installs: pip install 'cafenet[EXTRA]'."""

_OLDEST_TORCH = (2, 4)


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together, and what to do about it."""

    finding: str
    """The finding, as a sentence."""
    remedy: str
    """The remedy, as a sentence or a command."""


@dataclass(frozen=True)
class Environment:
    """The installation as it was found."""

    system: str
    """Python and the operating system."""
    versions: Mapping[str, str | None]
    """Version of each distribution by its name; None if it is not installed."""
    devices: tuple[str, ...]
    """The devices that torch can use."""
    problems: tuple[Problem, ...]
    """Known incompatibilities; empty if there is none."""


def find_environment() -> Environment:
    """Look at the installation. Torch is imported, and torchvision if it is installed.

    Returns:
        What was found.
    """
    names = ("cafenet", *NEEDED, *(name for group in OPTIONAL.values() for name in group))
    versions = {name: installed_version(name) for name in names}
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Environment(system, versions, find_devices(), find_problems(versions))


def installed_version(name: str) -> str | None:
    """Return the version of a distribution without importing it.

    Args:
        name: Name of the distribution, as pip knows it.

    Returns:
        The version, or None if it is not installed.
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_devices() -> tuple[str, ...]:
    """Return the devices that torch can use, in words.

    Returns:
        One line per device.
    """
    import torch

    found = [f"cpu: {os.cpu_count()} cores, {torch.get_num_threads()} threads of torch"]
    found += [f"cuda:{number}: {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps: the GPU of this Mac")
    return tuple(found)


def find_problems(versions: Mapping[str, str | None]) -> tuple[Problem, ...]:
    """Find known incompatibilities.

    Args:
        versions: Version of each distribution by its name.

    Returns:
        The problems, each with its remedy.
    """
    checks: tuple[Callable[[Mapping[str, str | None]], Problem | None], ...] = (
        _old_torch,
        _numpy_apart,
        _torchvision_apart,
        _trainer_without_accelerate,
    )
    return tuple(problem for check in checks if (problem := check(versions)) is not None)


def _old_torch(versions: Mapping[str, str | None]) -> Problem | None:
    """Find a torch that is older than what CafeNet is written for."""
    torch = versions.get("torch")
    numbers = re.match(r"(\d+)\.(\d+)", torch or "")
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= _OLDEST_TORCH:
        return None
    return Problem(f"torch must be 2.4 or later, but is {torch}", "pip install --upgrade torch")


def _numpy_apart(versions: Mapping[str, str | None]) -> Problem | None:
    """Find a torch that was compiled for another numpy."""
    import torch

    try:
        torch.zeros(1).numpy()
    except RuntimeError as error:
        return Problem(f"torch {versions.get('torch')} cannot use numpy {versions.get('numpy')}: {error}", _NUMPY)
    return None


_NUMPY = "pip install --upgrade torch, or pip install 'numpy<2' for an old torch"


def _torchvision_apart(versions: Mapping[str, str | None]) -> Problem | None:
    """Find a torchvision that belongs to another torch, by what it asks for and by whether its operators load."""
    torch, torchvision = versions.get("torch"), versions.get("torchvision")
    if torchvision is None or torch is None:
        return None
    wanted = next((match[1] for each in requires("torchvision") or [] if (match := _EXACT_TORCH.match(each))), None)
    if wanted is not None and torch.partition("+")[0] != wanted:
        finding = f"torchvision {torchvision} belongs to torch {wanted}, but torch is {torch}"
        return Problem(finding, f"pip install torch=={wanted}, or the torchvision of torch {torch}")
    try:
        import torchvision as imported
    except (ImportError, RuntimeError, OSError) as error:
        return Problem(f"torchvision {torchvision} cannot be imported: {error}", _SAME_INDEX)
    if not lacks_compiled_operators() and hasattr(imported, "ops"):
        return None
    return Problem(
        f"torchvision {torchvision} was compiled for another build than torch {torch}, so its compiled operators "
        "do not load; its models and transforms work after `import cafenet`",
        _SAME_INDEX,
    )


_EXACT_TORCH = re.compile(r"torch\s*\(?==\s*([\d.]+)")
_SAME_INDEX = "install both with one command, as pytorch.org shows for your system, so that both come from one index"


def _trainer_without_accelerate(versions: Mapping[str, str | None]) -> Problem | None:
    """Find a transformers whose Trainer lacks what it runs on."""
    if versions.get("transformers") is None or versions.get("accelerate") is not None:
        return None
    return Problem(
        "transformers is installed without accelerate, which its Trainer (and SupernetTrainer) needs",
        "pip install 'cafenet[accelerate]' if you use it",
    )
