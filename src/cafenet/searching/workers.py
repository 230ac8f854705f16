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
from cafenet.common.run_files import JOURNAL
from cafenet.errors import ModelNameError, StoreError
from cafenet.models.user_factory import import_source, imported_files
from cafenet.searching.budget import Budget

if TYPE_CHECKING:
    from cafenet.searching.width_search import WidthSearch


@contextmanager
def shared_storage(storage: str | Path | None, num_workers: int) -> Iterator[str | Path | None]:
    """The storage itself; where several workers need one and there is none, a journal for as long as this lasts."""
    if storage is not None or num_workers == 1:
        yield storage
        return
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / JOURNAL


@contextmanager
def local_workers(
    search: "WidthSearch", budget: Budget, storage: str | Path | None, study: str, num_workers: int
) -> Iterator[None]:
    """Start num_workers - 1 helpers; the caller is the last worker and ends them, and they end when it dies.

    A worker that dies is missed by nobody: its claim is taken over, and at the end there is a warning. The search goes
    to the helpers in a file that they map into memory, because shared tensors take an open file each.
    """
    if num_workers == 1:
        yield
        return
    threads_before = torch.get_num_threads()
    num_threads = max(1, threads_before // num_workers)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "search.pt"
        _save(search, path)
        args = (os.getpid(), path, imported_files(), budget, storage, study, num_threads)
        helpers = [context.Process(target=_help, args=args, daemon=True) for _ in range(num_workers - 1)]
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
                    f"{len(codes)} of {num_workers} workers ended early, with exit code {codes[0]}; the others went on",
                    stacklevel=2,
                )


def _save(search: "WidthSearch", path: Path) -> None:
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
    """Processes that are started inside end with this one from their first moment on, and leave Ctrl-C to it.

    A helper imports for seconds before it runs anything of ours, so it is told so on its command line. A Ctrl-C goes to
    all processes of a terminal; a blocked signal stays blocked in a new process.
    """
    command_line = spawn.get_command_line

    def with_parent(**options: Any) -> list[str]:
        command = command_line(**options)
        if "-c" in command:  # else the program is one frozen file
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
    """What a helper runs; caller: the process that it ends with; files: those by which the model or the metric was
    imported."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent.end_with_parent(caller)
    torch.set_num_threads(num_threads)
    with ExitStack() as stack:
        for file in files:
            with suppress(ModelNameError):  # of another model, perhaps; what this one lacks is said when it is read
                stack.enter_context(import_source(file))
        search: WidthSearch = torch.load(path, mmap=True, weights_only=False)  # written by who started this process
        search.help(budget, storage, study)
