"""The notice board of a shared search: what its workers must know, kept as attributes of a study without trials."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import optuna
from optuna.storages._cached_storage import _CachedStorage

from cafenet.errors import StoreError
from cafenet.searching.store.journal_file import open_storage, without_password

_NOTICE = "cafenet_search"
Result = TypeVar("Result")


class Board:
    """The notices of one storage, one for each search that is shared in it."""

    def __init__(self, storage: str) -> None:
        """Open the storage.

        Args:
            storage: An Optuna storage URL.

        Raises:
            StoreError: If the text is no URL, or the storage cannot be reached.
        """
        if "://" not in storage:
            raise StoreError(
                "a storage that machines share must be a URL, such as postgresql://USER@HOST/DATABASE, but got "
                f"{storage!r}"
            )
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.address = without_password(storage)
        self._storage = open_storage(storage)
        self._repeat: Callable[[Callable[[], Any]], Any] = lambda work: work()
        if isinstance(self._storage, _CachedStorage):
            from cafenet.searching.store.outages import Patient  # SQLAlchemy takes long to import

            self._repeat = Patient(self._storage._backend.engine, self.address).repeat

    def write(self, name: str, notice: Mapping[str, Any]) -> None:
        """Put up a notice in place of an earlier one.

        Args:
            name: Name of the search.
            notice: Plain values.
        """

        def work() -> None:
            study = optuna.create_study(
                storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
            )
            self._storage.set_study_user_attr(study._study_id, _NOTICE, dict(notice))

        self._repeat(work)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return all notices.

        Returns:
            The notices by the names of their searches.
        """

        def work() -> dict[str, dict[str, Any]]:
            studies = self._storage.get_all_studies()
            return {each.study_name: each.user_attrs[_NOTICE] for each in studies if _NOTICE in each.user_attrs}

        found: dict[str, dict[str, Any]] = self._repeat(work)
        return found
