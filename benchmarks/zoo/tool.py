"""A tool of the zoo: an analysis that is timed, and a use that shows whether the analysis was right."""

from typing import Any, TypeAlias

from torch import Tensor, nn

Facts: TypeAlias = dict[str, Any]
"""Findings of a step: plain values for the JSON file."""


class Tool:
    """Finds what can vary in a model (`analyse`, timed) and makes a narrower one (`use`); to fail is to raise."""

    environment: dict[str, str] = {}  # noqa: RUF012 - read only; set before the model is built

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model, self.example = model, example

    def prepare(self) -> None:
        """Make what each `analyse` needs afresh; not timed."""

    def analyse(self) -> Facts:
        """Find what can vary."""
        raise NotImplementedError

    def use(self) -> Facts:
        """Make a narrower model and run it; the last call, so it may change the model."""
        raise NotImplementedError
