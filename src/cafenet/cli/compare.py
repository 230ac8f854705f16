"""`cafenet compare`: several runs on one page."""

import argparse
from pathlib import Path
from typing import Any

from cafenet.cli.paths import some_path


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "compare",
        help="show several runs side by side, with what differs in their recipes",
        description="Show several runs in one table and on one page: accuracy, FLOPs and time beside the keys that "
        "differ. If one number is all that differs (r, lambda, beta, ...), accuracy and time are drawn against it.",
        epilog="examples:\n"
        "  for r in 0 1 2; do cafenet run demo --supernet.r $r --output runs/r$r; done\n"
        "  cafenet compare runs/r0 runs/r1 runs/r2 --open",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", metavar="RUN_DIR", type=some_path, nargs="+", help="directories of runs")
    parser.add_argument(
        "--output",
        type=some_path,
        metavar="FILE",
        default=Path("comparison.html"),
        help="where to write the page (default: %(default)s)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--figures", type=some_path, metavar="DIR", help="also save every figure as SVG")
    parser.set_defaults(command_function=_compare)


def _compare(args: argparse.Namespace) -> None:
    """Print the comparison and write its page."""
    from rich.console import Console

    from cafenet.common.files import write_text
    from cafenet.report.comparison import (
        comparison_table,
        read_comparison,
        sentences,
        settings_table,
        shown_keys,
    )
    from cafenet.report.comparison_page import comparison_figures, comparison_html
    from cafenet.report.figure_html import save_figures

    comparison = read_comparison(args.runs)
    console = Console(markup=False)  # names and paths may have brackets
    if len(comparison.keys) != len(shown_keys(comparison)):
        console.print(settings_table(comparison))
    console.print(comparison_table(comparison))
    for run in comparison.runs:
        for line in (*run.problems, *run.missing()):
            console.print(f"{run.name}: {line}")
    for line in sentences(comparison):
        console.print(line)
    write_text(args.output, comparison_html(comparison))
    console.print(f"The page is {args.output}.", soft_wrap=True)
    if args.figures is not None:
        for figure in save_figures(comparison_figures(comparison), args.figures):
            print(figure)
    if args.open:
        import webbrowser

        webbrowser.open(args.output.resolve().as_uri())
