"""`cafenet report`: the page of a run, rewritten."""

import argparse
import sys
from typing import Any

from cafenet.cli.paths import some_path
from cafenet.errors import RecipeError


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "report",
        help="write the page of a run (report.html), finished or not",
        description="Write all that is known about a run to one self-contained page, finished or not.",
        epilog="examples:\n  cafenet report runs/demo --open\n"
        "  cafenet report runs/demo --output demo.html --figures figures/",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_DIR", type=some_path, help="directory of a run or a search")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--output", type=some_path, metavar="FILE", help="where to write (default: RUN_DIR/report.html)"
    )
    parser.add_argument("--figures", type=some_path, metavar="DIR", help="also save every figure as SVG")
    parser.set_defaults(command_function=_report)


def _report(args: argparse.Namespace) -> None:
    """Write the page of a run, and its figures if asked."""
    from cafenet.report.figure_html import save_figures
    from cafenet.report.figures import all_figures
    from cafenet.report.run_page import write_report
    from cafenet.report.run_records import read_run

    run = read_run(args.run)
    for line in run.problems:
        print(f"warning: {line}", file=sys.stderr)
    if run.is_detection and args.figures is not None:
        raise RecipeError("--figures is for runs of `cafenet run`, but this is one of `cafenet detect`")
    if run.is_detection:
        from cafenet.detection.report_page import write_detection_report

        path = write_detection_report(args.run, args.output)
    else:
        path = write_report(args.run, args.output)
    print(path)
    if args.figures is not None:
        for figure in save_figures(all_figures(run), args.figures):
            print(figure)
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
