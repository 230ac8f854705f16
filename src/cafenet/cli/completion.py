"""`cafenet completion`: what a shell needs to complete commands, flags, recipes and paths with the tab key."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_EPILOG = """\
examples:
  cafenet completion bash > ~/.local/share/bash-completion/completions/cafenet
  cafenet completion zsh > ~/.zfunc/_cafenet         # with fpath+=~/.zfunc before compinit in ~/.zshrc
  cafenet completion fish > ~/.config/fish/completions/cafenet.fish
"""
_SHELLS = ("bash", "zsh", "fish")
_DIRECTORIES, _FILES = ("DIR", "RUN_DIR"), ("FILE", "MODEL")


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "completion",
        help="print what bash, zsh or fish need to complete commands, flags and paths",
        description="Print a completion script for a shell. It is text: completing starts no Python.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS, help="bash, zsh or fish")
    parser.set_defaults(command_function=_completion)


def _completion(args: argparse.Namespace) -> None:
    """Print the script of a shell."""
    from cafenet.cli.main import command_parser

    print(completion_script(command_parser(), args.shell))


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a shell.

    Args:
        parser: The parser of the `cafenet` command, whose arguments are given what completes them.
        shell: "bash", "zsh" or "fish".

    Returns:
        The script.
    """
    import shtab

    from cafenet.runs.recipe_texts import DETECTION, shipped_recipes

    names = {"run": list(shipped_recipes()), "detect": list(shipped_recipes(DETECTION))}
    for path, action in _actions(parser):
        kind = "detect" if path.endswith(" detect") else "run"
        ways = {"RECIPE": _recipe_ways(kind, names[kind]), **dict.fromkeys(_DIRECTORIES, shtab.DIRECTORY)}
        ways |= dict.fromkeys(_FILES, shtab.FILE)
        if isinstance(action.metavar, str) and action.metavar in ways:
            action.complete = ways[action.metavar]  # type: ignore[attr-defined]
    script: str = shtab.complete(parser, shell, preamble=_recipe_functions(shell, names))
    return script


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Return all arguments of a parser and of its commands, each with the command's words."""
    for action in parser._actions:
        yield parser.prog, action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _recipe_ways(kind: str, names: Sequence[str]) -> dict[str, str]:
    """Return what completes a recipe in each shell: the names of a kind, and files."""
    function = f"_cafenet_{kind}_recipe_files"
    fish = f"{' '.join(names)} (__fish_complete_path (commandline -ct))"
    return {"bash": function, "zsh": function, "fish": fish}


def _recipe_functions(shell: str, names: Mapping[str, Sequence[str]]) -> str:
    """Return the functions that `_recipe_ways` names; fish needs none."""
    bodies = {
        "bash": 'compgen -W "{names}" -- "$1"; compgen -d -- "$1"; compgen -f -X "!*.y*ml" -- "$1"',
        "zsh": "_alternative 'recipes:recipe:({names})' 'files:file:_files -g \"*.y*ml\"'",
    }
    if shell not in bodies:
        return ""
    filled = {kind: bodies[shell].format(names=" ".join(each)) for kind, each in names.items()}
    return "\n".join(f"_cafenet_{kind}_recipe_files() {{ {body}; }}" for kind, body in filled.items())
