"""`cafenet detect`: classification models as backbones of a detector, trained alike and compared."""

import argparse
from pathlib import Path
from typing import Any

from cafenet.cli.paths import some_path
from cafenet.cli.recipe_list import print_recipes
from cafenet.errors import RecipeError

_EPILOG = """\
examples:
  cafenet detect --list                                       # what is shipped
  cafenet detect bccd-faster-rcnn --show > mine.yaml          # one to start from
  cafenet detect bccd-faster-rcnn --backbones.run runs/celeba-mobilenet-v2-small --seeds [0,1]
  cafenet detect mine.yaml --output runs/mine --train.epochs 6

The backbones are the trained models of a directory of `cafenet run`, or files of cafenet.save. Every key of a recipe is
a flag (see `cafenet detect --help-recipe`). A second start of the same command continues the run.
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "detect",
        help="compare searched backbones under Faster R-CNN or RetinaNet",
        description="Train and evaluate searched backbones alike, under Faster R-CNN or RetinaNet.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="a .yaml file, or a shipped recipe's name")
    parser.add_argument("--output", type=some_path, metavar="DIR", help="run directory (default: runs/RECIPE)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the result")
    parser.add_argument("--list", action="store_true", help="list the shipped recipes, and exit")
    parser.add_argument("--show", action="store_true", help="print the recipe, and exit")
    parser.add_argument("--help-recipe", action="store_true", help="show every key of a recipe, and exit")
    parser.set_defaults(command_function=_detect, takes_flags=True)


def _detect(args: argparse.Namespace) -> None:
    """Show help, list or print recipes, or run one."""
    from cafenet.detection import recipe as recipes
    from cafenet.runs.recipe_files import recipe_parser

    if args.help_recipe:
        parser = recipe_parser(
            recipes.DetectionRecipe, prog="cafenet detect RECIPE", usage="cafenet detect RECIPE [flags]"
        )
        parser.print_help()
    elif args.list:
        print_recipes(recipes.shipped_detection_recipes())
    elif args.recipe is None:
        raise RecipeError("give a recipe, a .yaml file or one of `cafenet detect --list`")
    elif args.show:
        print(recipes.detection_recipe_text(args.recipe), end="")
    else:
        _run(args)


def _run(args: argparse.Namespace) -> None:
    """Run a recipe and print its results."""
    from rich.console import Console

    from cafenet.detection.recipe import load_detection_recipe
    from cafenet.detection.report_page import write_detection_report
    from cafenet.detection.results import claims, results_table
    from cafenet.detection.run_recipe import detect
    from cafenet.training.process_group import processes

    recipe = load_detection_recipe(args.recipe, args.flags)
    directory = args.output or Path("runs") / Path(args.recipe).name.removesuffix(".yaml").removesuffix(".yml")
    rows = detect(recipe, directory, quiet=args.quiet)
    if not processes().is_first:  # under torchrun the first process tells
        return
    console = Console(markup=False)  # descriptions and paths may have brackets
    console.print(results_table(rows, recipe.reference, title=recipe.description))
    for line in claims(rows):
        console.print(line)
    console.print(f"The report is {write_detection_report(directory)}.")
