"""Estimates compared on the raw measurements, without measuring again.

    python -m benchmarks.latency.estimates

Each estimate is fitted to the rows `fit` and judged on the rows `unseen`. "Clock" takes the median ratio of times by
the clock, as measurements were made before; "processor" takes the processor's time, which does not count while other
processes have the core. "Plain" is a sum of rates; "steps" lets the measurements choose whether widths are rounded up
to steps, and how much the rates of single widths are shrunk, by predicting each of them by the others. "Noise" is the
median difference of rows that were measured twice.
"""

from typing import Any

import numpy as np

from benchmarks.common.places import kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.latency.collect import MEASUREMENTS, kept
from benchmarks.latency.measure import NETWORKS, traced
from benchmarks.latency.page import markdown
from cafenet.searching.latency.estimate import LatencyModel, fitted
from cafenet.space.cost import FloatArray, IntArray

RUNTIMES = ("torch", "onnxruntime", "openvino")
_MEDIAN = 3
"""Place of the median among the quantiles of a measurement."""
_FEWEST = 8


def main() -> None:
    """Judge every network and divisor that was measured, and write the page."""
    lines, output = kept(MEASUREMENTS), kept_results("latency")
    results = Results(output)
    for network in NETWORKS:
        for divisor in sorted({line["divisor"] for line in lines if line["network"] == network}):
            rows = [line for line in lines if line["network"] == network and line["divisor"] == divisor]
            if sum(line["part"] == "unseen" for line in rows) >= _FEWEST:
                for runtime in RUNTIMES:
                    found = judged(network, runtime, rows)
                    print(network, divisor, runtime, found, flush=True)
                    results.add("estimates", f"{network} {divisor} {runtime}", found)
    page_of("latency", output).write_text(markdown(results), encoding="utf-8")


def judged(network: str, runtime: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The errors of the estimates of one network in one runtime: median and 90% quantile."""
    space, _ = traced(network)
    fit, unseen, again = ([row for row in rows if row["part"] == part] for part in ("fit", "unseen", "again"))
    seen, new = (np.array([row["widths"] for row in part]) for part in (fit, unseen))
    found: dict[str, Any] = {"fitted": len(fit), "unseen": len(unseen)}
    found["load"] = float(np.median([row["load"] for row in rows]))
    for name, clock in (("clock", "ratio"), ("processor", "cpu_ratio")):
        times, expected = (_times(part, runtime, clock) for part in (fit, unseen))
        model = LatencyModel(space, seen, times)
        found[f"{name}, plain"] = _errors(_plain(model, new), expected)
        found[f"{name}, steps"] = _errors(model.predict(new), expected)
        found[f"{name}, step"] = model.shape[0]
        first = {row["number"]: _times([row], runtime, clock)[0] for row in unseen}
        pairs = [abs(_times([row], runtime, clock)[0] / first[row["number"]] - 1) for row in again]
        found[f"{name}, noise"] = float(np.median(pairs)) if pairs else None
    return found


def _times(rows: list[dict[str, Any]], runtime: str, clock: str) -> FloatArray:
    """The times of rows as shares of the full model's."""
    return np.array([row["times"][runtime][clock][_MEDIAN] for row in rows])


def _plain(model: LatencyModel, widths: IntArray) -> FloatArray:
    """The prediction of a sum of rates without steps."""
    rates = fitted(model._terms(model.widths, 1), model.latency_ms)
    predicted: FloatArray = model._terms(widths, 1) @ rates
    return predicted


def _errors(predicted: FloatArray, measured: FloatArray) -> list[float]:
    """The median and the 90% quantile of the relative errors."""
    return [round(each, 4) for each in np.quantile(np.abs(predicted / measured - 1), [0.5, 0.9]).tolist()]


if __name__ == "__main__":
    main()
