"""What the tests of pages share: runs on disk and made up, and a page taken apart."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from cafenet.report.run_records import RunRecord, StudyRecord
from cafenet.report.trials import TrialRecord


class Page(HTMLParser):
    """Tables, figures, data blocks, links and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.figures: list[str] = []
        self.blocks: dict[str, Any] = {}
        self.addresses: list[str] = []
        self.missing: list[str] = []
        self.keys: list[str] = []
        self._cell: list[str] | None = None
        self._block: str | None = None
        self._is_missing = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []
        elif tag == "button":
            self.keys.append(found["data-legend"] or "")
        elif tag == "figure":
            self.figures.append(found["id"] or "")
        elif tag == "script" and found.get("type") == "application/json":
            self._block = found["id"]
        elif tag == "p" and found.get("class") == "missing":
            self._is_missing = True
            self.missing.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append("".join(self._cell))
            self._cell = None
        elif tag == "script":
            self._block = None
        elif tag == "p":
            self._is_missing = False

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self._block is not None:
            self.blocks[self._block] = json.loads(data)
        if self._is_missing:
            self.missing[-1] += data


def made_up_run(num_trials: int, num_groups: int = 25, **fields: Any) -> RunRecord:
    """A run that never was: as many trials as wanted, no final models."""
    rng = np.random.default_rng(0)
    names = [f"features.{number}.conv" for number in range(num_groups)]
    trials = [
        TrialRecord(
            widths=dict(zip(names, (8 * rng.integers(1, 64, num_groups)).tolist(), strict=True)),
            value=float(rng.normal(0.8, 0.02)),
            costs={"flops": float(rng.integers(140_000_000, 150_000_000))},
            search="Evolution(population=40) 50% seed 0",
            label="iteration 1",
            is_complete=bool(number % 3 == 0),
            is_exact=False,
            seconds=0.1,
        )
        for number in range(num_trials)
    ]
    log = [{"epoch": number / 100, "loss": 2.0 - number / 1000} for number in range(200)]
    groups = [{"name": name, "layers": [name], "channels": 512, "bin_size": 8, "num_bins": 64} for name in names]
    defaults: dict[str, Any] = {
        "path": Path("made-up"),
        "recipe": {"description": "made up", "metric": "accuracy"},
        "manifest": {"seconds": {"train": 10.0}},
        "space": {"groups": groups, "frozen": [{"name": "head", "channels": 10, "reason": "is the output"}]},
        "entries": [],
        "results": None,
        "studies": [StudyRecord("supernet", log, trials)],
    }
    return RunRecord(**{**defaults, **fields})
