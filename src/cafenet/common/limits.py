"""Limits on what a file or an option may ask for; an environment variable, which the error names, raises each."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from cafenet.errors import CafeNetError


@dataclass(frozen=True)
class Limit:
    """The most that is accepted of something, unless an environment variable says more."""

    variable: str
    default: int

    def value(self, error: type[CafeNetError]) -> int:
        """The variable's number, or the default where it is not set."""
        text = os.environ.get(self.variable, "").strip() or str(self.default)
        if not text.isdecimal():
            raise error(f"the environment variable {self.variable} must be a whole number, but is {text!r:.40}")
        return int(text)

    def check(self, number: int, what: str, error: type[CafeNetError]) -> None:
        """Refuse a number above the limit; `what` names it: "the pixels of faces/1.png"."""
        most = self.value(error)
        if number > most:
            raise error(
                f"{what} must be at most {most:,}, but would be {number:,}; if that is meant, set the environment "
                f"variable {self.variable} to a larger number"
            )


IMAGE_PIXELS = Limit("CAFENET_MAX_IMAGE_PIXELS", 89_478_485)
"""Of one image: 9,459 x 9,459, where Pillow begins to warn."""
ARRAY_BYTES = Limit("CAFENET_MAX_ARRAY_BYTES", 32 * 2**30)
"""Of one array of an npz file, unpacked."""
INPUT_NUMBERS = Limit("CAFENET_MAX_INPUT_NUMBERS", 2**27)
"""Of one input of a model: 3 x 6,600 x 6,600."""
YAML_BYTES = Limit("CAFENET_MAX_YAML_BYTES", 2**20)
"""Of a recipe's file."""
YAML_NODES = Limit("CAFENET_MAX_YAML_NODES", 100_000)
"""Of a recipe, aliases counted as often as they are used."""
YAML_DEPTH = Limit("CAFENET_MAX_YAML_DEPTH", 30)
"""Of a recipe's lists and dicts inside each other."""


def check_input_size(size: Sequence[int], error: type[CafeNetError]) -> None:
    """An example input must fit into memory with room to spare."""
    INPUT_NUMBERS.check(math.prod(size), f"the numbers of an input of size {list(size)}", error)
