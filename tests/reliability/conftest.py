"""The benchmark's own modules, as a start from the repository's root finds them."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


@pytest.fixture(scope="session", autouse=True)
def _imported_once():
    """What children would each import by themselves."""
    from benchmarks.reliability.children import preload

    preload()
