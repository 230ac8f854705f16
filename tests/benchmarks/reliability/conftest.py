import pytest

from benchmarks.reliability.children import preload


@pytest.fixture(scope="session", autouse=True)
def _imported_once():
    """What children would each import by themselves."""
    preload()
