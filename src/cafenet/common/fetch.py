"""Files of a run directory that may lie elsewhere: on a web server, in an object store."""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from cafenet.errors import RunFileError, first_line


class RunPlace:
    """A run directory, on this machine or behind a URL of fsspec such as `s3://bucket/runs/demo`.

    Files behind a URL are copied into a temporary directory when they are asked for.
    """

    def __init__(self, place: str | Path) -> None:
        """Remember where the directory is.

        Args:
            place: A path, or a URL.
        """
        self._is_remote = "://" in str(place)
        self.name = str(place).rstrip("/")
        self._copies = TemporaryDirectory(prefix="cafenet-") if self._is_remote else None

    def __enter__(self) -> Self:
        """Return this directory; its copies are removed at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the copies."""
        if self._copies is not None:
            self._copies.cleanup()

    def file(self, name: str) -> Path:
        """Return the path of a file on this machine.

        Args:
            name: Path of the file inside of the directory, with slashes.

        Returns:
            The path.

        Raises:
            RunFileError: If the file is not there or cannot be copied.
        """
        if self._copies is None:
            path = Path(self.name) / name
            if not path.is_file():
                raise RunFileError(f"{path} must be there, but is not; give the run's own directory, or a copy of it")
            return path
        path = Path(self._copies.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        url = f"{self.name}/{name}"
        try:
            import fsspec  # type: ignore[import-untyped]

            system, where = fsspec.core.url_to_fs(url)
            system.get_file(where, str(path))
        except Exception as error:  # whatever the driver of the URL raises, or that there is none
            reason = first_line(error) if not isinstance(error, FileNotFoundError) else "there is no such file"
            raise RunFileError(
                f"{url} must be readable, but: {reason}; check the address, and that fsspec's driver of it is "
                "installed (s3: pip install s3fs, gs: gcsfs, abfs: adlfs, http: aiohttp)"
            ) from error
        return path
