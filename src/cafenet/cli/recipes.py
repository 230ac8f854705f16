"""`cafenet recipes`: the shipped recipes."""

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from cafenet.runs.recipe_files import recipe_text, shipped_recipes


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "recipes",
        help="list the shipped recipes, or print one to start from",
        description="`cafenet recipes` lists them; `cafenet recipes show NAME > mine.yaml` gives one to start from.",
    )
    parser.set_defaults(command_function=_recipes)
    actions = parser.add_subparsers(dest="action")
    show = actions.add_parser("show", help="print a recipe")
    show.add_argument("name", metavar="NAME")


def _recipes(args: argparse.Namespace) -> None:
    """List the recipes, or print one."""
    if args.action == "show":
        print(recipe_text(args.name), end="")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it does")
    for name, description in shipped_recipes().items():
        table.add_row(name, description)
    Console().print(table)
