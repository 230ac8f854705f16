"""A file of latencies that searches share: each is kept with all that it was measured with.

One line of JSON is one measurement. A model is known by the names and shapes of its tensors, so that the same widths
are found again whichever channels were kept.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cafenet.common.locks import locked
from cafenet.errors import BudgetError
from cafenet.modules.inputs import call_arguments
from cafenet.modules.tensors import named_tensors

Times = tuple[float, float, float]
"""Median, lower and upper quartile in ms."""


class KeptTimes:
    """The measurements in a file that were made with the same options on the same machine."""

    def __init__(self, path: Path, made_with: Mapping[str, Any]) -> None:
        """Name the file.

        Args:
            path: The file, which need not exist.
            made_with: Everything that the measurements depend on beside the model and its inputs.
        """
        self._path, self._made_with = path, dict(made_with)

    def key_of(self, model: nn.Module, example_inputs: Any) -> str:
        """Return the key of a model with its inputs.

        Args:
            model: The model.
            example_inputs: Its inputs.

        Returns:
            A short digest of its class, the names, shapes and types of its tensors, and the shapes of the inputs.
        """
        tensors = [[name, [*tensor.shape], str(tensor.dtype)] for name, tensor in named_tensors(model).items()]
        content = [type(model).__qualname__, tensors, input_shapes(example_inputs)]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    def read(self) -> dict[str, Times]:
        """Return the measurements by their keys.

        Returns:
            The last measurement of each key that was made with the same options.

        Raises:
            BudgetError: If the file cannot be read, or holds something else.
        """
        if not self._path.exists():
            return {}
        try:
            lines = [json.loads(line) for line in self._path.read_text().splitlines() if line.strip()]
            found = [(str(each["key"]), each["ms"]) for each in lines if each["made_with"] == self._made_with]
            return {key: (float(median), float(low), float(high)) for key, (median, low, high) in found}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BudgetError(
                f"latency.cache must name a file of latencies, but {self._path} is none ({error}); remove it or name "
                "another"
            ) from error

    def add(self, key: str, times: Times) -> None:
        """Append a measurement.

        Args:
            key: Key of the model.
            times: Its median and quartiles.

        Raises:
            BudgetError: If the file cannot be written.
        """
        line = json.dumps({"key": key, "ms": times, "made_with": self._made_with}) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file, locked(file, self._path):
                file.write(line.encode())
        except (OSError, ValueError) as error:  # the latter for a path that no system has
            raise BudgetError(f"latencies must be written to {self._path}, but: {error}; name another file") from error


def input_shapes(example_inputs: Any) -> list[Any]:
    """Return the shapes and types of the tensors in inputs.

    Args:
        example_inputs: Inputs of a model.

    Returns:
        A pair of sizes and type for each tensor, as plain values.
    """
    leaves = tree_leaves(call_arguments(example_inputs))
    return [[[*leaf.shape], str(leaf.dtype)] for leaf in leaves if isinstance(leaf, Tensor)]


def machine_name(device: str) -> str:
    """Return the model name of the GPU or CPU that measures.

    Args:
        device: The device as PyTorch names it.

    Returns:
        The name.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
