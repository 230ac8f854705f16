"""Files of torch.save that may come from anywhere: read without running code, and without unpacking."""

import zipfile
from pathlib import Path
from typing import Any

import torch


def read_archive(path: Path) -> Any:
    """The content of a file of torch.save, on the CPU; whatever is wrong with it is an exception of some kind."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            packed = [each.filename for each in archive.infolist() if each.compress_type != zipfile.ZIP_STORED]
        if packed:  # torch.save compresses nothing; what is compressed may unfold to any size
            raise ValueError(f"{packed[0]} in it is compressed")
    return torch.load(path, map_location="cpu", weights_only=True)
