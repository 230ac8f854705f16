"""A paired difference as a cell of a table."""

from cafenet.common.statistics import PairedDifference


def cell_of(found: PairedDifference | None, digits: int = 2) -> str:
    """`+1.20 [+0.30, +2.10]`, bold where the interval does not hold zero; empty where nothing was compared.

    Differences that are all equal, as regrets of the same two picks, have no spread to judge by and are not bold.
    """
    if found is None:
        return ""
    if found.num_pairs < 2:
        return f"{found.mean:+.{digits}f} (one seed)"
    text = f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    return f"**{text}**" if found.is_clear and found.high - found.low > 1e-9 else text
