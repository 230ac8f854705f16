"""The file of an offline run of Weights & Biases, which its own package writes but has no reader for.

The file is a log as LevelDB writes it: a head of seven bytes, then blocks of 32 KiB with parts of records. Each part
has a checksum (4 bytes), a length (2) and a kind (1: whole, 2: first, 3: middle, 4: last). Records are protobufs.
"""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEAD, _BLOCK, _PART = 7, 32 * 1024, 7
_WHOLE, _LAST = 1, 4


@dataclass
class Logged:
    """What a run has logged."""

    project: str = ""
    is_offline: bool = False
    is_finished: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    drawn_over: dict[str, str] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)


def logged_in(directory: Path) -> Logged:
    """Read the only run in the directory of a logger; wandb's service writes its end some time after `finish`."""
    (file,) = directory.glob("wandb/offline-run-*/*.wandb")
    for _ in range(100):
        logged = Logged()
        for record in _records(file.read_bytes()):
            _add(logged, record)
        if logged.is_finished:
            break
        time.sleep(0.1)
    return logged


def _add(logged: Logged, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        logged.project = record.run.project or logged.project  # later records hold what has changed
    elif kind == "telemetry":
        logged.is_offline = record.telemetry.feature.offline
    elif kind == "history":
        values = {_name(item): json.loads(item.value_json) for item in record.history.item}
        logged.rows.append({name: value for name, value in values.items() if not name.startswith("_")})
    elif kind == "metric":
        logged.drawn_over[record.metric.glob_name or record.metric.name] = record.metric.step_metric
    elif kind == "summary":
        logged.summary |= {_name(item): json.loads(item.value_json) for item in record.summary.update}
    elif kind == "output_raw":
        logged.printed.append(record.output_raw.line)
    elif kind == "exit":
        logged.is_finished = record.exit.exit_code == 0


def _name(item: Any) -> str:
    return item.key or "/".join(item.nested_key)


def _records(content: bytes) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    assert content[:4] == b":W&B"
    place, parts = _HEAD, b""
    while place + _PART <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _PART:  # a part never begins in the last bytes of a block
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + _PART : place + _PART + size]
        place += _PART + size
        if kind in (_WHOLE, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record
