"""Files of torch.save from unknown sources, read without running code and without decompression."""

import zipfile
from pathlib import Path
from typing import Any

import torch


def read_archive(path: Path) -> Any:
    """Reads a file of torch.save to the CPU.

    Args:
        path: Path of the file.

    Returns:
        The content.

    Raises:
        Exception: An error of any kind, if the file is broken or holds more than plain values and tensors.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            packed = [each.filename for each in archive.infolist() if each.compress_type != zipfile.ZIP_STORED]
        if packed:  # torch.save compresses nothing; compressed content may expand to any size
            raise ValueError(f"{packed[0]} in it is compressed")
    return torch.load(path, map_location="cpu", weights_only=True)
