"""What `cafenet inspect` found, as tables for people."""

from collections import defaultdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cafenet.inspection import Inspection
from cafenet.space import WidthSpace

_NUM_NAMES_SHOWN = 4


def print_inspection(inspection: Inspection, console: Console) -> None:
    """Print the groups, the totals, and what is frozen and why."""
    space = inspection.space
    # Text, not str: rich would read [0] in a name as markup.
    console.print(Text(f"{inspection.model}, input {'x'.join(map(str, inspection.input_size))}", style="bold"))
    console.print(_group_table(space))
    console.print(f"FLOPs       {space.flops():,} (1 multiply-add = 1 FLOP, as in the paper)", highlight=False)
    console.print(f"parameters  {space.params():,}", highlight=False)
    console.print(
        f"searchable  {space.searchable_flops_share:.1%} of the FLOPs, in {len(space.groups)} width groups",
        highlight=False,
    )
    proof = "and verified by running a shrunk model" if inspection.verified else "not verified (--no-verify)"
    console.print(f"traced      in {inspection.seconds:.2f} s, {proof}", highlight=False)
    console.print()
    if space.frozen:
        console.print(_frozen_table(space))
    else:
        console.print("Nothing is frozen.")


def _group_table(space: WidthSpace) -> Table:
    table = Table()
    table.add_column("width group", overflow="fold")
    for heading in ("channels", "divisor", "min width", "FLOPs share", "FLOPs/channel"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in space.groups:
        table.add_row(
            Text(group.name),
            f"{group.channels:,}",
            f"{group.divisor:,}",
            f"{group.min_width:,}",
            f"{space.flops_share(group.name):.1%}",
            f"{group.sensitivity:,.0f}",
        )
    return table


def _frozen_table(space: WidthSpace) -> Table:
    """One row per reason: large models freeze hundreds of dimensions for a handful of reasons."""
    names_by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for frozen in space.frozen:
        names_by_reason[frozen.reason].append(f"{frozen.name} ({frozen.channels})")
    table = Table(show_lines=True)
    table.add_column("frozen because", ratio=1, overflow="fold")
    table.add_column("what (channels)", ratio=1, overflow="fold")
    for reason, names in names_by_reason.items():
        hidden = len(names) - _NUM_NAMES_SHOWN
        shown = names[:_NUM_NAMES_SHOWN] + ([f"and {hidden} more (--json lists all)"] if hidden > 0 else [])
        table.add_row(Text(reason), Text("\n".join(shown)))
    return table
