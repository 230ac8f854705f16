"""Studies of many trials in PostgreSQL: how long it takes to open one, and what one more trial costs."""

import resource
import time
from typing import Any

import numpy as np
import sqlalchemy as sql

from benchmarks.store.workers import NUM_GROUPS, Load, open_store, scored
from cafenet.searching.store.trials import _encoded

_FILL = (
    "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete) "
    "SELECT :first + n, n, :study, 'COMPLETE', now(), now() FROM generate_series(0, :last) AS n",
    "INSERT INTO trial_values (trial_id, objective, value, value_type) "
    "SELECT :first + n, 0, 0.7, 'FINITE' FROM generate_series(0, :last) AS n",
    "INSERT INTO trial_user_attributes (trial_id, key, value_json) "
    "SELECT :first + n, 'score', :score FROM generate_series(0, :last) AS n",
    "INSERT INTO trial_user_attributes (trial_id, key, value_json) SELECT :first + n, 'bins', "
    "'[' || (n % 15 + 1) || ', ' || (n / 15 % 15 + 1) || ', ' || (n / 225 % 15 + 1) || ', ' || (n / 3375 % 15 + 1) "
    "|| ', ' || (n / 50625 % 15 + 1) || ', ' || (n / 759375 % 15 + 1) || :rest || ']' "
    "FROM generate_series(0, :last) AS n",
    "SELECT setval(pg_get_serial_sequence('trials', 'trial_id'), :first + :last + 1)",
    "ANALYZE",
)


def fill(url: str, number: int) -> None:
    """Write so many finished trials at once, without the widths as parameters, which only people read."""
    import json

    store = open_store(url, Load(1, 0, 0))
    score = json.dumps({**_encoded(scored(np.ones(NUM_GROUPS, dtype=int))), "values": None})
    values = {"first": 1, "last": number - 1, "study": store._study_id, "score": score}
    values["rest"] = ", 8" * (NUM_GROUPS - 6)
    with sql.create_engine(url, isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in _FILL:
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(sql.text(statement), used)


def measure_depth(url: str, number: int, turns: int = 10) -> dict[str, Any]:
    """Open a study of so many trials, and add some more, once as before and once as Optuna does it."""
    fill(url, number)
    row: dict[str, Any] = {"num_trials": number}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, by_optuna in (("ours", False), ("optuna", True)):
        if by_optuna and number > 100_000:  # it takes minutes and more memory than this machine has
            continue
        start = time.perf_counter()
        store = open_store(url, Load(1, 0, 0, by_optuna))
        row[f"open_seconds_{kind}"] = round(time.perf_counter() - start, 2)
        rng, times, cpus = np.random.default_rng(number), [], []
        for _ in range(turns):
            bins = rng.integers(1, 16, NUM_GROUPS)
            start, cpu = time.perf_counter(), time.process_time()
            claim = store.claim(bins)
            store.add(scored(bins), claim)
            times.append(time.perf_counter() - start)
            cpus.append(time.process_time() - cpu)
        row[f"trial_ms_{kind}"] = round(1000 * float(np.median(times)), 2)
        row[f"trial_cpu_ms_{kind}"] = round(1000 * float(np.median(cpus)), 2)
        if kind == "ours":
            row["memory_mb"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        del store
    return row
