"""`cafenet doctor`: versions, devices, what is installed, and what does not fit together."""

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "doctor",
        help="print versions, devices and known incompatibilities with their remedies",
        description="Print what a report of a problem should contain, and what does not fit together.",
    )
    parser.set_defaults(command_function=_doctor)


def _doctor(args: argparse.Namespace) -> None:
    """Print what was found."""
    from cafenet.common.environment import NEEDED, OPTIONAL, find_environment

    found = find_environment()
    print(f"cafenet {found.versions['cafenet'] or '(not installed)'}, {found.system}")
    print("needed:   " + ", ".join(f"{name} {found.versions[name] or 'MISSING'}" for name in NEEDED))
    for line in found.devices:
        print(f"device:   {line}")
    for extra, names in OPTIONAL.items():
        missing = [name for name in names if found.versions[name] is None]
        there = ", ".join(f"{name} {found.versions[name]}" for name in names if name not in missing)
        remedy = f"missing: {', '.join(missing)}; pip install 'cafenet[{extra}]'" if missing else ""
        print(f"optional: {'; '.join(part for part in (there, remedy) if part)}")
    for problem in found.problems:
        print(f"problem:  {problem.finding}\nremedy:   {problem.remedy}")
    if not found.problems:
        print("No known incompatibility was found.")
