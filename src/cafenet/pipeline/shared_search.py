"""A search whose scores lie in a database, so that workers on other machines may join it.

The running search announces what a worker must know: the version, the recipe, and which supernet is searched for which
budgets. The supernet itself lies in the run's directory.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from cafenet.searching.budget import Budget, Cap

RUNNING, ENDED = "running", "ended"


@dataclass(frozen=True)
class SharedSearch:
    """A storage that a run shares with workers on other machines."""

    storage: str
    """URL of the storage."""
    name: str
    """Name of the search in the storage; the studies of its supernets begin with it."""
    directory: Path
    """The run directory."""
    recipe: Mapping[str, Any]
    """The recipe as plain values."""
    part: Mapping[str, Any] = field(default_factory=dict)
    """Values that tell one search of the run from the others: the algorithm, the stage."""

    def study(self, place: Path) -> str:
        """Return the name of the study of one supernet.

        Args:
            place: Directory of the supernet.

        Returns:
            The name.
        """
        return f"{self.name}/{place.relative_to(self.directory).as_posix()}"

    def tell(self, state: str, task: Mapping[str, Any] | None = None) -> None:
        """Announce the state of the run.

        Args:
            state: `RUNNING` or `ENDED`.
            task: The search that workers may join now, or None.
        """
        from cafenet.searching.store.board import Board  # optuna takes long to import

        notice = {"versions": versions(), "recipe": dict(self.recipe), "state": state, "task": task}
        Board(self.storage).write(self.name, notice)

    @contextmanager
    def open_for(self, place: Path, budgets: Sequence[Budget]) -> Iterator[None]:
        """Announce a search while the context lasts.

        Args:
            place: Directory of the supernet that is searched.
            budgets: The budgets that it is searched for.

        Yields:
            Nothing.
        """
        asked = [{"text": each.text, "caps": {cap.cost: cap.limit for cap in each.caps}} for each in budgets]
        where = place.relative_to(self.directory).as_posix()
        self.tell(RUNNING, {**self.part, "study": self.study(place), "place": where, "budgets": asked})
        yield  # a search that ends in an error may be continued, so that its workers wait
        self.tell(RUNNING)


def versions() -> dict[str, str]:
    """Return the versions that scores may depend on.

    Returns:
        The versions by package.
    """
    return {"cafenet": version("cafenet"), "torch": torch.__version__}


def budget_of(asked: Mapping[str, Any]) -> Budget:
    """Return a budget that `SharedSearch` has announced.

    Args:
        asked: Its text and its caps as plain values.

    Returns:
        The budget.
    """
    return Budget(asked["text"], tuple(Cap(cost, limit) for cost, limit in asked["caps"].items()))
