"""`cafenet dashboard`: Optuna's dashboard on the study of a run."""

import argparse
import socket
from pathlib import Path
from typing import Any

from cafenet.commands.paths import some_path
from cafenet.errors import StoreError
from cafenet.report.records import study_places
from cafenet.run_files import JOURNAL


def add_to(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "dashboard",
        help="open Optuna's dashboard on a run's scored widths",
        description="Serve Optuna's dashboard on the trials of a run, also while it searches; needs "
        "`pip install cafenet[dashboard]`.",
        epilog="examples:\n  cafenet dashboard runs/demo\n  cafenet dashboard runs/demo --study supernet-fixed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_DIR", type=some_path)
    parser.add_argument("--study", metavar="NAME", help="which supernet's (default: the first)")
    parser.add_argument("--host", default="localhost", help="where to serve it (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="(%(default)s)")
    parser.set_defaults(command_function=_dashboard)


def find_journal(run: Path, study: str | None = None) -> Path:
    """The trials of a run's supernet: `runs/demo/supernet/trials.journal` is the study `supernet`."""
    journals = {
        str(place.relative_to(run)): place / JOURNAL for place in study_places(run) if (place / JOURNAL).exists()
    }
    if not journals:
        raise StoreError(f"{run} must be a run directory with scored widths, but has no trials.journal yet")
    if study is None:
        return next(iter(journals.values()))
    if study not in journals:
        raise StoreError(f"--study must be one of {', '.join(journals)}, but got {study!r}")
    return journals[study]


def _dashboard(args: argparse.Namespace) -> None:
    from cafenet.searching.storage import open_storage

    journal = find_journal(args.run, args.study)
    try:
        from optuna_dashboard import run_server
    except ImportError as error:
        raise StoreError("the dashboard is an extra: pip install 'cafenet[dashboard]'") from error
    _check_port(args.host, args.port)
    print(f"http://{args.host}:{args.port}/ shows {journal}; Ctrl-C ends it", flush=True)
    run_server(open_storage(journal), host=args.host, port=args.port)


def _check_port(host: str, port: int) -> None:
    """It must be free, which the server would say less clearly."""
    if not 0 < port < 65536:
        raise StoreError(f"--port must lie in 1 to 65535, but is {port}")
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise StoreError(
            f"{host}:{port} must be free to serve on, but: {error.strerror}; give another --port"
        ) from error
