"""The `cafenet` command: parses the command line, calls the package, prints the result.

The modules of the commands import torch and whatever else takes long when a command runs, not to declare its flags.
"""

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cafenet.cli import (
    compare,
    completion,
    dashboard,
    detect,
    doctor,
    export,
    inspect,
    profile,
    recipes,
    report,
    run,
    slim,
    worker,
)
from cafenet.common.interrupts import KEPT, Stopped, stoppable_command
from cafenet.errors import CafeNetError, CafeNetWarning

_EPILOG = """\
start here:
  cafenet inspect torchvision:mobilenet_v2       which widths can vary, and what they cost
  cafenet slim net.py:Net --weights net.pt --data folder:images --budget 50%
                                                 a smaller version of your trained network
  cafenet run demo                               the whole job on embedded data, in some minutes
  cafenet recipes                                what else is shipped
  cafenet doctor                                 versions, devices, and what does not fit together
"""

_COMMANDS = (
    inspect,
    profile,
    slim,
    run,
    worker,
    recipes,
    report,
    compare,
    dashboard,
    export,
    detect,
    doctor,
    completion,
)
_BAD_PATHS = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SIGPIPE = 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Invalid input prints one line that says what must hold and exits with code 2.

    Args:
        argv: The arguments, by default those of this process.

    Returns:
        The exit code: 0, 2 after a mistake that the user can correct, 130 after Ctrl-C, 143 after SIGTERM.
    """
    try:
        with stoppable_command(), _warnings_in_one_line():
            _run(argv)
    except BrokenPipeError:  # the reader of the output has ended, as in `cafenet ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + _SIGPIPE
    except CafeNetError as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return 2
    except _BAD_PATHS as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename} cannot be read or written: {error.strerror}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = str(error.filename)[:80]
            print(f"error: a name must be shorter to be a file's, but is {name!r}...", file=sys.stderr)
            return 2
        if error.errno not in _FULL:
            raise
        print(f"error: the disk must have room, but: {error}; what was written before is kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"stopped: {str(stop) or KEPT}", file=sys.stderr)
        return stop.exit_code if isinstance(stop, Stopped) else Stopped().exit_code
    return 0


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    Returns:
        The parser, with a subparser for each command.
    """
    parser = argparse.ArgumentParser(
        prog="cafenet",
        description="Find how wide each layer of a PyTorch network should be, within a budget.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and exit")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for module in _COMMANDS:
        module.add_to(commands)
    return parser


def _run(argv: Sequence[str] | None) -> None:
    """Parse the command line and run the subcommand."""
    parser = command_parser()
    args, flags = parser.parse_known_args(argv)
    if args.command is None and not flags:
        parser.print_help()
        return
    if flags and not getattr(args, "takes_flags", False):  # without a command, too
        parser.error(f"unrecognized arguments: {' '.join(flags)}")
    args.flags = flags
    command: Callable[[argparse.Namespace], None] = args.command_function
    if os.getcwd() not in sys.path:  # package.module:FACTORY must find the user's package, as with `python -m`
        sys.path.insert(0, os.getcwd())
    command(args)
    sys.stdout.flush()


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print warnings of the package as one line, without the place in its source that Python would show."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, CafeNetWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                show(message, category, *place, **options)

        warnings.showwarning = show_line
        warnings.simplefilter("always", CafeNetWarning)
        yield


class _Version(argparse.Action):
    """Reads the version only if it is asked for, since that takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **options: Any) -> None:
        import cafenet

        print(f"cafenet {cafenet.__version__}")
        parser.exit()


def _sentence(error: CafeNetError) -> str:
    """Return the message of an error; from a worker of a data loader it is the last line of a traceback."""
    text = str(error)
    return text.rstrip().splitlines()[-1].partition(": ")[2] if text.startswith("Caught ") else text
