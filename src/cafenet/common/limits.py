"""Limits on the size of files and options; each can be raised by an environment variable, which the error names."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from cafenet.errors import CafeNetError


@dataclass(frozen=True)
class Limit:
    """The largest accepted number of something, unless an environment variable allows more."""

    variable: str
    """Name of the environment variable."""
    default: int
    """Limit if the variable is not set."""

    def value(self, error: type[CafeNetError]) -> int:
        """Reads the limit.

        Args:
            error: Class of the error to raise.

        Returns:
            The number in the environment variable, or the default if it is not set.

        Raises:
            CafeNetError: As an `error`, if the variable holds no whole number.
        """
        text = os.environ.get(self.variable, "").strip() or str(self.default)
        if not text.isdecimal():
            raise error(f"the environment variable {self.variable} must be a whole number, but is {text!r:.40}")
        return int(text)

    def check(self, number: int, what: str, error: type[CafeNetError]) -> None:
        """Refuses a number above the limit.

        Args:
            number: The number to check.
            what: Name of the number in the message, for example "the pixels of faces/1.png".
            error: Class of the error to raise.

        Raises:
            CafeNetError: As an `error`, if the number is above the limit.
        """
        most = self.value(error)
        if number > most:
            raise error(
                f"{what} must be at most {most:,}, but would be {number:,}; if that is meant, set the environment "
                f"variable {self.variable} to a larger number"
            )


IMAGE_PIXELS = Limit("CAFENET_MAX_IMAGE_PIXELS", 89_478_485)
"""Largest number of pixels of an image: 9,459 x 9,459, above which Pillow warns."""
ARRAY_BYTES = Limit("CAFENET_MAX_ARRAY_BYTES", 32 * 2**30)
"""Largest number of bytes of one unpacked array of an npz file."""
INPUT_NUMBERS = Limit("CAFENET_MAX_INPUT_NUMBERS", 2**27)
"""Largest number of values in one input of a model: 3 x 6,600 x 6,600."""
YAML_BYTES = Limit("CAFENET_MAX_YAML_BYTES", 2**20)
"""Largest number of bytes of a recipe file."""
YAML_NODES = Limit("CAFENET_MAX_YAML_NODES", 100_000)
"""Largest number of values of a recipe; an alias counts as often as it is used."""
YAML_DEPTH = Limit("CAFENET_MAX_YAML_DEPTH", 30)
"""Largest depth of nested lists and dicts in a recipe."""


def check_input_size(size: Sequence[int], error: type[CafeNetError]) -> None:
    """Refuses an example input that would not fit into memory.

    Args:
        size: Shape of the input.
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, if the input has too many values.
    """
    INPUT_NUMBERS.check(math.prod(size), f"the numbers of an input of size {list(size)}", error)
