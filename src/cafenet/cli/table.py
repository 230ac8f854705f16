"""The results of `cafenet inspect` as tables for the terminal."""

from decimal import Decimal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cafenet.space.bins import Bins
from cafenet.space.summary import Inspection
from cafenet.space.width_space import WidthSpace


def print_inspection(inspection: Inspection, console: Console) -> None:
    """Print the groups, the frozen layers with their reasons, and the totals last, where the eye falls.

    Args:
        inspection: The traced model and its bins.
        console: The console to print on.
    """
    space = inspection.space
    size = "x".join(map(str, inspection.input_size))
    # A Text object is printed literally; in a str, rich would read [0] in a name as markup.
    console.print(Text(f"{inspection.model}, input {size}", style="bold"))
    console.print(_group_table(space, inspection.bins))
    if space.frozen:
        console.print(_frozen_table(space))
    else:
        console.print("Nothing is frozen.\n")
    console.print(_totals(inspection), highlight=False)


def _group_table(space: WidthSpace, bins: Bins) -> Table:
    """Return the table of width groups."""
    columns = {
        "channels": [f"{group.channels:,}" for group in space.groups],
        "divisor": [f"{group.divisor:,}" for group in space.groups],
        "min\nwidth": [f"{group.min_width:,}" for group in space.groups],
        "FLOPs\nshare": [f"{space.flops_share(group.name):.1%}" for group in space.groups],
        "FLOPs per\nchannel": [f"{group.sensitivity:,.0f}" for group in space.groups],
        "bin\nsize": [f"{group.size:,}" for group in bins.groups],
        "bins": [f"{group.num_bins:,}" for group in bins.groups],
    }
    for heading in ("divisor", "min\nwidth"):  # a column of ones says nothing
        if set(columns[heading]) == {"1"}:
            del columns[heading]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("width group", overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for group, *row in zip(space.groups, *columns.values(), strict=True):
        table.add_row(Text(group.name), *row)
    return table


def _frozen_table(space: WidthSpace) -> Table:
    """Return the table of frozen layers."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("frozen layer", overflow="fold")
    table.add_column("channels", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for frozen in space.frozen:
        table.add_row(Text(frozen.name), f"{frozen.channels:,}", Text(frozen.reason))
    return table


def _totals(inspection: Inspection) -> Text:
    """Return the totals."""
    space = inspection.space
    shares = sum(space.flops_share(group.name) for group in space.groups)
    proof = "verified on a shrunk run" if inspection.verified else "not verified"
    return Text(
        f"FLOPs       {space.flops():,} (1 multiply-add = 1 FLOP, as in the paper)\n"
        f"parameters  {space.params():,}\n"
        f"searchable  {space.searchable_flops_share:.1%} of the FLOPs; width groups: {len(space.groups)}\n"
        f"shares      add up to {shares:.0%}, as a layer counts for the group it reads and for the one it writes\n"
        f"bins        beta {inspection.beta:g}: {_scientific(inspection.bins.search_space_size)} width vectors\n"
        f"traced in   {inspection.seconds:.2f} s, {proof}"
    )


def _scientific(number: int) -> str:
    """Return a large number as 2.6e26; a float could not hold products of many groups beyond 1e308."""
    return f"{number:,}" if number < 1_000_000 else f"{Decimal(number):.1e}".replace("e+", "e")
