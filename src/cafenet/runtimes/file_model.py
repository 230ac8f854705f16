"""An exported file as a module, so that it is evaluated like any other model."""

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from cafenet.errors import ExportError
from cafenet.runtimes.file_formats import FILE_FORMATS, format_of_ending
from cafenet.runtimes.session import outputs_of


class FileModel(nn.Module):
    """A file for deployment that runs in its runtime.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import cafenet
        >>> from cafenet.runtimes.file_model import FileModel
        >>> data = torch.utils.data.TensorDataset(torch.eye(3), torch.arange(3))
        >>> model = torch.nn.Linear(3, 3)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     _ = cafenet.export(model, torch.zeros(2, 3), f"{directory}/model.pt2")
        ...     cafenet.evaluate(FileModel(f"{directory}/model.pt2"), data) == cafenet.evaluate(model, data)
        True
    """

    def __init__(self, path: str | PathLike[str], batch_size: int | None = None) -> None:
        """Open a file.

        Args:
            path: A file with the ending `.pt2`, `.onnx`, `.xml` or `.pte`.
            batch_size: Batch size that the file is fixed to, as int8 files and `.pte` files are. Other batches are
                divided, and the last part is filled up. None is for files that take any.

        Raises:
            CafeNetError: If the file has another ending, or its runtime is not installed or cannot run it.
        """
        super().__init__()
        name = format_of_ending(Path(path).suffix.removeprefix("."))
        if name not in FILE_FORMATS:
            endings = ", ".join(each.ending for each in FILE_FORMATS.values())
            raise ExportError(f"a file must have one of the endings {endings}, but is {path}")
        self._session, self._batch_size = FILE_FORMATS[name].read(Path(path), None), batch_size

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the file.

        Args:
            *args: Positional arguments of the model.
            **kwargs: Keyword arguments of the model.

        Returns:
            The output, or a tuple of outputs if there are several.
        """
        size = next(leaf.shape[0] for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim)
        step = self._batch_size or size
        parts = [self._outputs((args, kwargs), start, size, step) for start in range(0, size, step)]
        outputs = tuple(torch.cat(each)[:size] for each in zip(*parts, strict=True))
        return outputs[0] if len(outputs) == 1 else outputs

    def _outputs(self, inputs: Any, start: int, size: int, step: int) -> list[Tensor]:
        """Run a part of a batch; rows after the end repeat the last one."""
        rows = torch.arange(start, start + step).clamp(max=size - 1)

        def part(leaf: Any) -> Any:
            """Return the rows of a tensor that holds examples."""
            is_batched = isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == size
            return leaf[rows] if is_batched and step != size else leaf

        return outputs_of(self._session, tree_map(part, inputs))
