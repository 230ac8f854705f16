"""The networks of the training tests serve here, too; assertions of shared modules are explained by pytest."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "train"))
pytest.register_assert_rewrite("searching", "small")
