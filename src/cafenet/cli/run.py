"""`cafenet run` and its single steps: from a recipe to a run directory with trained slim models and a table."""

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cafenet.cli.paths import some_path
from cafenet.common.loggers import LOG_HELP, logger_name
from cafenet.errors import RecipeError

if TYPE_CHECKING:
    from cafenet.runs.run_recipe import Step

_EPILOG = """\
examples:
  cafenet run demo                                            # embedded data, some minutes
  cafenet run cifar10-mobilenet-v2-small --data.source npz:data/cifar10 --budget 50%,25%
  cafenet run my-recipe.yaml --output runs/first --train.epochs 20

Every key of a recipe is a flag (see `cafenet run --help-recipe`). A second start of the same command continues the run.
Everything lies in the run directory: recipe.yaml, manifest.json, the supernets and their studies, results.json,
report.html, models/*/seed-*/slim.pt.
"""

_STEPS: dict[str, tuple["Step", str]] = {
    "run": ("evaluate", "the whole job: supernet, search, training from scratch, baselines, table"),
    "train": ("train", "only train the supernets of a recipe"),
    "search": ("search", "train the supernets and search their widths"),
    "finetune": ("finetune", "everything up to the training of the final models"),
    "evaluate": ("evaluate", "same as run: everything up to the table"),
}


def add_to(commands: Any) -> None:
    """Declare the command and its steps.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    for name, (step, help_text) in _STEPS.items():
        parser = commands.add_parser(
            name,
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="a .yaml file, or a shipped recipe's name")
        parser.add_argument("--output", type=some_path, metavar="DIR", help="run directory (default: runs/RECIPE)")
        loudness = parser.add_mutually_exclusive_group()
        parser.add_argument(
            "--log",
            action="append",
            type=logger_name,
            default=[],
            metavar="KIND:PATH",
            help=LOG_HELP,
        )
        loudness.add_argument("--quiet", action="store_true", help="print nothing but the result")
        loudness.add_argument("--verbose", action="store_true", help="also log what each step begins with and finds")
        parser.add_argument(
            "--storage",
            metavar="URL",
            help="keep scores in a database, so that `cafenet worker` can join from anywhere",
        )
        parser.add_argument("--study", metavar="NAME", help="name of the search in the storage (default: that of DIR)")
        parser.add_argument("--help-recipe", action="store_true", help="show every key of a recipe, and exit")
        parser.set_defaults(command_function=_run, takes_flags=True, step=step)


def _run(args: argparse.Namespace) -> None:
    """Run a recipe up to a step, print the table and write the report."""
    if args.help_recipe:
        from cafenet.runs.recipe_files import recipe_parser

        recipe_parser(prog="cafenet run RECIPE", usage="cafenet run RECIPE [flags]").print_help()
        return
    if args.recipe is None:
        raise RecipeError("give a recipe, a .yaml file or one of `cafenet recipes`")
    from rich.console import Console

    from cafenet.common.events import logging_to
    from cafenet.common.loggers import loggers_of
    from cafenet.runs.recipe_files import load_recipe
    from cafenet.runs.results import claims, results_table
    from cafenet.runs.run_recipe import run_recipe
    from cafenet.training.process_group import processes

    _tell(logging.INFO if args.verbose else logging.WARNING)
    recipe = load_recipe(args.recipe, args.flags)
    directory = args.output or Path("runs") / Path(args.recipe).name.removesuffix(".yaml").removesuffix(".yml")
    with logging_to(loggers_of(args.log)):
        rows = run_recipe(recipe, directory, until=args.step, storage=args.storage, study=args.study, quiet=args.quiet)
    if not processes().is_first:  # under torchrun the first process tells
        return
    console = Console(markup=False)  # descriptions and paths may have brackets
    if rows:
        console.print(results_table(rows, recipe.reference, title=recipe.description))
        for line in claims(rows):
            console.print(line)
    from cafenet.report.run_page import write_report  # it is needed after the run only

    report = write_report(directory)
    models = "; models/*/seed-*/slim.pt beside it load with cafenet.load" if rows else ""
    console.print(f"The report is {report}{models}.", soft_wrap=True)


def _tell(level: int) -> None:
    """Show the package's log messages from this level on, on stderr."""
    from rich.console import Console
    from rich.logging import RichHandler

    logger = logging.getLogger("cafenet")
    logger.setLevel(level)
    logger.handlers = [RichHandler(console=Console(stderr=True), show_path=False)]
