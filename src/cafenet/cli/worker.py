"""`cafenet worker`: scores widths of a search that runs on another machine."""

import argparse
import sys
from typing import Any

_EPILOG = """\
examples:
  cafenet run demo --storage postgresql://me@db/widths --output runs/demo    # on one machine: trains, then searches
  cafenet worker postgresql://me@db/widths --run runs/demo                   # on any other that sees its directory
  cafenet worker postgresql://me@db/widths --run s3://bucket/runs/demo       # or a copy in an object store

A worker takes the recipe from the storage and the trained supernet from the run's directory. It may join and leave at
any time: a width that it has claimed and not scored is scored by others.
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "worker",
        help="join a search that runs on another machine",
        description="Score widths of a search that `cafenet run --storage URL` runs elsewhere, until it ends.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("storage", metavar="URL", help="the storage of the search, such as postgresql://USER@HOST/DB")
    parser.add_argument("--run", required=True, metavar="DIR", help="the run's directory, a copy, or a URL of it")
    parser.add_argument("--study", metavar="NAME", help="name of the search (default: that of DIR, or the only one)")
    parser.add_argument("--device", metavar="DEVICE", help="device of this worker (default: that of the recipe)")
    parser.add_argument("--data", metavar="SOURCE", help="where this machine has the data (default: as in the recipe)")
    parser.add_argument(
        "--wait", type=float, default=600.0, metavar="SECONDS", help="end after so long without work (default: 600)"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but the result")
    parser.set_defaults(command_function=_work)


def _work(args: argparse.Namespace) -> None:
    """Join the search, and say what was done."""
    from cafenet.errors import StoreError
    from cafenet.runs.join_search import join_search

    if not args.wait >= 0:
        raise StoreError(f"--wait must be 0 seconds or more, but is {args.wait:g}")
    done = join_search(
        args.storage,
        args.run,
        study=args.study,
        device=args.device,
        data=args.data,
        wait_seconds=args.wait,
        tell=(lambda line: None) if args.quiet else (lambda line: print(line, file=sys.stderr, flush=True)),
    )
    print(f"{done.scored} widths scored in {done.searches} searches; {done.reason}.")
