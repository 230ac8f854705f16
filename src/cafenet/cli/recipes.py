"""`cafenet recipes`: the shipped recipes."""

import argparse
from typing import Any

from cafenet.cli.recipe_list import print_recipes


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "recipes",
        help="list the shipped recipes, or print one to start from",
        description="`cafenet recipes` lists them; `cafenet recipes show RECIPE > mine.yaml` gives one to start from.",
    )
    parser.set_defaults(command_function=_recipes)
    actions = parser.add_subparsers(dest="action")
    show = actions.add_parser("show", help="print a recipe")
    show.add_argument("name", metavar="RECIPE")


def _recipes(args: argparse.Namespace) -> None:
    """List the recipes, or print one."""
    from cafenet.runs.recipe_texts import recipe_text, shipped_recipes

    if args.action == "show":
        print(recipe_text(args.name), end="")
        return
    print_recipes(shipped_recipes())
