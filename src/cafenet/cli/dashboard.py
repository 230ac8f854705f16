"""`cafenet dashboard`: Optuna's dashboard on the study of a run."""

import argparse
from pathlib import Path
from typing import Any

from cafenet.cli.paths import some_path
from cafenet.common.extras import install
from cafenet.errors import StoreError


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "dashboard",
        help="open Optuna's dashboard on a run's scored widths",
        description="Serve Optuna's dashboard on the trials of a run, also while it searches; needs "
        "`pip install '.[dashboard]'` in the checkout. It has no login: whoever reaches the address can read, change "
        "and delete trials. By default only this machine reaches it; requests of other web sites are refused.",
        epilog="examples:\n  cafenet dashboard runs/demo\n  cafenet dashboard runs/demo --study supernet-fixed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_DIR", type=some_path, help="directory of a run or a search")
    parser.add_argument("--study", metavar="NAME", help="study of which supernet (default: the first)")
    parser.add_argument(
        "--host",
        default="localhost",
        help="address to serve on (default: %(default)s); other machines reach any other address, without a login",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name under which browsers may reach it, such as that of a proxy; can be repeated",
    )
    parser.add_argument("--port", type=int, default=8080, help="port to serve on (default: %(default)s)")
    parser.set_defaults(command_function=_dashboard)


def find_journal(run: Path, study: str | None = None) -> Path:
    """Find the trials of a run's supernet: `runs/demo/supernet/trials.journal` is the study `supernet`.

    Args:
        run: The run directory.
        study: Name of the study, by default the first one.

    Returns:
        The journal file.

    Raises:
        StoreError: If the run has no scored widths, or no such study.
    """
    from cafenet.common.run_places import JOURNAL
    from cafenet.report.run_records import study_places

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
    """Serve the dashboard until Ctrl-C."""
    from cafenet.cli.web_guard import guarded, is_loopback
    from cafenet.cli.web_server import check_port, opening_at, web_server
    from cafenet.searching.store.journal_file import open_storage

    journal = find_journal(args.run, args.study)
    try:
        from optuna_dashboard import wsgi
    except ImportError as error:
        raise StoreError(f"the dashboard is an extra; {install('dashboard')}") from error
    check_port(args.host, args.port)
    storage = open_storage(journal)
    place = next((f"/dashboard/studies/{study._study_id}" for study in storage.get_all_studies()), "/dashboard")
    application = guarded(opening_at(wsgi(storage), place), args.host, args.allow_host)
    with web_server(args.host, args.port, application) as server:
        print(f"http://{args.host}:{args.port}{place} shows {journal}; Ctrl-C ends it", flush=True)
        if not is_loopback(args.host):
            print("There is no login: whoever reaches this address can change and delete trials.", flush=True)
        server.serve_forever()
