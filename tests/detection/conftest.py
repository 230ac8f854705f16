import sys

import pytest


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch):
    """The command adds the working directory to where modules are looked for."""
    monkeypatch.setattr(sys, "path", list(sys.path))
