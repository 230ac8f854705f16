"""Kinds of models and runs: each has one colour and one mark, the same on every page.

The colours stand in `assets/page.css`, for light and for dark screens. They differ in lightness as well as in hue, so
that people who are colour-blind tell them apart, and text in them is readable.
"""

from collections.abc import Sequence

OWN, UNIFORM, ORIGINAL = "own", "uniform", "original"
_OTHERS = tuple(f"other-{number}" for number in range(1, 7))
_SHAPES = {OWN: "dot", UNIFORM: "square", ORIGINAL: "ring"}


def is_own(method: str) -> bool:
    """Return whether CafeNet found a model.

    Args:
        method: Name of the method, for example "CafeNet-T".

    Returns:
        True if it did.
    """
    return method.startswith("CafeNet")


def kind_of(method: str, methods: Sequence[str] = ()) -> str:
    """Return the kind of a method, which is its CSS class.

    Args:
        method: Name of the method.
        methods: Names of all methods on the page; those without a colour of their own take turns in this order.

    Returns:
        "own", "uniform", "original" or one of six others.
    """
    fixed = _fixed_kind(method)
    if fixed is not None:
        return fixed
    rest = list(dict.fromkeys(each for each in methods if _fixed_kind(each) is None))
    return _OTHERS[(rest.index(method) if method in rest else 0) % len(_OTHERS)]


def kind_of_run(number: int) -> str:
    """Return the kind of a run beside other runs: none has the colour of Uniform or of the original.

    Args:
        number: Number of the run.

    Returns:
        The kind.
    """
    return (OWN, *_OTHERS)[number % (1 + len(_OTHERS))]


def shape_of(kind: str) -> str:
    """Return the mark of a kind, which tells it apart without colours.

    Args:
        kind: The kind.

    Returns:
        Name of a mark of `plot.SHAPES`.
    """
    return _SHAPES.get(kind, "triangle")


def _fixed_kind(method: str) -> str | None:
    """Return the kind of a method that has a colour of its own."""
    if is_own(method):
        return OWN
    return {"Uniform": UNIFORM, "Original": ORIGINAL}.get(method)
