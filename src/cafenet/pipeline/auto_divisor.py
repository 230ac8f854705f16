"""`divisor="auto"`: the steps of the runtime, measured once and kept, so that a second start has the same bins."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import DIVISOR
from cafenet.common.write_files import write_file
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.searching.latency.steps import find_steps
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig, divisor_of


class AutoDivisor:
    """The divisor that suits a runtime, found in the directory of a run or else by measuring."""

    def __init__(self, space: WidthSpace, example_inputs: Any, settings: LatencyConfig, directory: Path | None) -> None:
        """Measure nothing yet.

        Args:
            space: The width space of the model.
            example_inputs: Inputs of the model.
            settings: Conditions of the measurement, which name the runtime.
            directory: Directory of the run, in which an earlier start may have kept what it found; None has none.
        """
        self._arguments, self._directory = (space, example_inputs, settings), directory
        self.sentence = ""
        """A sentence about what was measured; empty if nothing was."""

    def settled(self, config: SupernetConfig) -> SupernetConfig:
        """Return options of a supernet with a number for the divisor.

        Args:
            config: The options.

        Returns:
            The options, with the steps of the runtime if their divisor is "auto".
        """
        return replace(config, divisor=self._found()) if config.divisor == "auto" else config

    def keep(self, config: SupernetConfig) -> None:
        """Write the divisor into the directory, once a run has accepted its options.

        Args:
            config: Options that `settled` returned, for a config whose divisor was "auto".
        """
        if self._directory is not None and self._before() is None:
            write_file(DIVISOR, self._directory, {"asked": self._asked(), "divisor": divisor_of(config)})

    def _found(self) -> int:
        """Return the divisor of an earlier start, or the steps as they are measured now."""
        before = self._before()
        if before is not None:
            return before
        steps = find_steps(*self._arguments)
        self.sentence = steps.sentence(str(self._asked()["settings"].get("runtime", "torch")))
        return steps.divisor

    def _before(self) -> int | None:
        """Return the divisor in the directory if it was measured for the same model and options."""
        before = None if self._directory is None else read_if_there(DIVISOR, self._directory)
        return int(before["divisor"]) if before is not None and before["asked"] == self._asked() else None

    def _asked(self) -> dict[str, Any]:
        """Return what the divisor was measured for, as plain values."""
        space, _, settings = self._arguments
        model = {"flops": int(space.flops()), "params": int(space.params()), "widths": dict(space.full_widths)}
        plain: dict[str, Any] = json.loads(json.dumps({"settings": settings.made_with(), "model": model}))
        return plain
