"""Workers on one machine: processes that run the same search on the same study and divide the machine's threads."""

import multiprocessing
import os
import pickle
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cafenet.common import parent_process as parent
from cafenet.common.files import write_torch
from cafenet.common.run_places import JOURNAL
from cafenet.errors import CafeNetWarning, ModelNameError, StoreError
from cafenet.models.user_factory import import_source, imported_files
from cafenet.searching.budget import Budget

if TYPE_CHECKING:
    from cafenet.searching.width_search import WidthSearch


@contextmanager
def shared_storage(storage: str | Path | None, search_workers: int) -> Iterator[str | Path | None]:
    """Give a storage that several workers can share.

    Args:
        storage: The user's storage, or None.
        search_workers: Number of processes.

    Yields:
        The user's storage; if there is none and several workers need one, a temporary journal file.
    """
    if storage is not None or search_workers == 1:
        yield storage
        return
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / JOURNAL


@contextmanager
def local_workers(
    search: "WidthSearch", budget: Budget, storage: str | Path | None, study: str, search_workers: int
) -> Iterator[None]:
    """Run search_workers - 1 helper processes while the context lasts; the caller is the last worker.

    The helpers end with the context and also if the caller dies. If a helper dies, another worker takes over its claim,
    and a warning follows at the end. The search is handed to the helpers in a file that they map into memory, because
    each shared tensor would need an open file.

    Args:
        search: The search that the helpers take part in.
        budget: The budget that is searched.
        storage: The storage that all workers share.
        study: Name of the Optuna study in the storage.
        search_workers: Number of processes, the caller included.

    Yields:
        Nothing.

    Raises:
        StoreError: If the search cannot be written or pickled.
    """
    if search_workers == 1:
        yield
        return
    threads_before = torch.get_num_threads()
    num_threads = max(1, threads_before // search_workers)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "search.pt"
        _save(search, path)
        args = (os.getpid(), path, imported_files(), budget, storage, study, num_threads)
        helpers = [context.Process(target=_help, args=args, daemon=True) for _ in range(search_workers - 1)]
        try:
            with _ending_with_this_process():
                for helper in helpers:
                    helper.start()
            torch.set_num_threads(num_threads)
            yield
        finally:
            torch.set_num_threads(threads_before)
            started = [helper for helper in helpers if helper.pid is not None]
            codes = [helper.exitcode for helper in started if helper.exitcode]
            for helper in started:
                helper.terminate()
                helper.join()
            if codes:
                warnings.warn(
                    f"{len(codes)} of {search_workers} workers ended early, with exit code {codes[0]}; the others "
                    "went on",
                    CafeNetWarning,
                    stacklevel=2,
                )


def _save(search: "WidthSearch", path: Path) -> None:
    """Write the search to a file for the helpers."""
    try:
        write_torch(path, search)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"a search must be handed to its workers in {path.parent}, but: {reason}") from error
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise StoreError(
            f"with several workers, the model and the metric must be importable by name, but: {error}; define them in "
            "a module, or use one worker here and start the same search in other processes on a storage URL"
        ) from error


@contextmanager
def _ending_with_this_process() -> Iterator[None]:
    """Make processes that are started inside end with this process, and leave Ctrl-C to it.

    A helper imports for seconds before it runs any code of ours, so its command line tells it to end with its parent. A
    Ctrl-C goes to all processes of a terminal; a signal that is blocked here stays blocked in a new process.
    """
    command_line = spawn.get_command_line

    def with_parent(**options: Any) -> list[str]:
        command = command_line(**options)
        if "-c" in command:  # otherwise the program is one frozen file
            first = f"import runpy; runpy.run_path({parent.__file__!r})['end_with_parent']({os.getpid()}); "
            command[command.index("-c") + 1] = first + command[command.index("-c") + 1]
        return command

    with ExitStack() as stack:
        if hasattr(signal, "pthread_sigmask"):
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        stack.callback(setattr, spawn, "get_command_line", command_line)
        spawn.get_command_line = with_parent
        yield


def _help(
    caller: int,
    path: Path,
    files: Sequence[str],
    budget: Budget,
    storage: str | Path,
    study: str,
    num_threads: int,
) -> None:
    """Run a helper that ends with the process `caller`; `files` are those that the model or the metric came from."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent.end_with_parent(caller)
    torch.set_num_threads(num_threads)
    with ExitStack() as stack:
        for file in files:
            with suppress(ModelNameError):  # the file may belong to another model; loading reports what is missing
                stack.enter_context(import_source(file))
        search: WidthSearch = torch.load(path, mmap=True, weights_only=False)  # the parent process wrote this file
        search.help(budget, storage, study)
