"""Progress of a search: the best score so far and the rate."""

import math
import time

from cafenet.common.events import current_loggers
from cafenet.common.run_log import RunLog
from cafenet.searching.store.scored_width import ScoredWidth


class SearchProgress:
    """Shows progress with the best score so far and the rate; the final scores come after the last step."""

    def __init__(self, total: int, title: str, quiet: bool) -> None:
        """Start with nothing scored.

        Args:
            total: Number of widths that will be scored.
            title: Title of the search, for example `search 50%`.
            quiet: True shows nothing.
        """
        self._run_log, self._total = RunLog(None, total, title=title, quiet=quiet), total
        self._run_log.start(0)
        self._title = title
        self._number, self._best, self._start = 0, -math.inf, time.monotonic()

    def __call__(self, scored: ScoredWidth) -> None:
        self._number += 1
        if scored.score.is_complete:
            self._best = max(self._best, scored.score.value)
            values = {"score": scored.score.value, "best": self._best, **scored.costs}
            current_loggers().trial(self._title, self._number, values)
        self._run_log.show(min(self._number, self._total - 1), f"{scored.label}, {self._note()}")

    def close(self) -> None:
        """Show the last state and restore the terminal."""
        self._run_log.show(self._total, self._note())
        self._run_log.close()

    def _note(self) -> str:
        """Return the best score and the rate in words."""
        rate = 60 * self._number / max(time.monotonic() - self._start, 1e-9)
        return f"best {self._best:.4g}, {rate:.0f} widths/min"
