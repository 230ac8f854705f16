"""The page of the results."""

import numpy as np

from benchmarks.common.results_file import Results
from benchmarks.latency.measure import NETWORKS, RUNTIMES, SHARE

_TEXT = """# Latency of runtimes

A search in milliseconds proposes widths by an estimate, measures what it picks, and corrects the estimate. Here: how
far the estimate is from measurements of widths that it has not seen, and whether picks for {share:.0%} of the full
model's latency still keep it in a new process. All times are relative to the full model in the same rounds, one thread,
batch 1. The machine was shared with other work: "load" is the number of processes that ran or waited in the last
minute, for each core of the machine, the median of three moments. Milliseconds are those of that hour.

```
python -m benchmarks.latency                          # some hours; goes on where it was stopped
python -m benchmarks.latency --networks ResNet-18 --runtimes torch onnxruntime
```

| network | runtime | full | smallest | fitted to | error on unseen: median | 90% | unseen | looks | kept again | load |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

"Looks" is how often a pick was measured before it was kept. An error is the absolute relative difference of estimate
and measurement. A pick is kept again if a new process measures at most {share:.0%} of the full model; {tolerance}

{missing}

## The estimate, judged without measuring again

```
python -m benchmarks.latency.collect     # goes on where it was stopped
python -m benchmarks.latency.estimates   # the table
```

`collect` keeps raw measurements; each estimate is fitted to the same rows and judged on rows that it has not seen:
median and 90% of the absolute relative errors. "Clock" is the median ratio of times by the clock, "processor" the same
of the processor's time, which is what CafeNet measures with one thread. "Plain" is a sum of rates, "steps" lets the
measurements choose steps of 1, 8, 16 or 32 channels. "Noise" is the median difference of rows that were measured twice:
no estimate can be better. Channels are multiples of the divisor.

| network | divisor | runtime | rows | clock, plain | steps | noise | processor, plain | steps | noise | load |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{estimates}

"Rows" are those fitted to and those unseen. The ONNX file of `collect` is opened by OpenVINO, too, and written by
PyTorch's older exporter, which takes a second where a search's takes five. The first table of this page was measured by
the clock.
"""


def markdown(results: Results) -> str:
    """The page as Markdown."""
    rows, missing, over = [], [], []
    for network in NETWORKS:
        for runtime in RUNTIMES:
            row = results.rows("measured").get(f"{network} {runtime}")
            if row is None:
                missing.append(f"{network} in {runtime}")
                continue
            if "problem" in row:
                missing.append(f"{network} in {runtime} ({row['problem']})")
                continue
            errors, ratios = np.abs(row["errors"]), np.array(row["ratios"])
            over += [each for each in ratios if each > SHARE]
            kept = f"{int((ratios <= SHARE).sum())} of {len(ratios)}" if len(ratios) else "none found"
            busy = f"{row['load']:.1f}" if "load" in row else "not recorded, heavy"
            rows.append(
                f"| {network} | {runtime} | {row['full_ms']:.2f} ms | {row['smallest_ms'] / row['full_ms']:.0%} | "
                f"{row['num_fitted']} | {np.median(errors):.1%} | {np.quantile(errors, 0.9):.1%} | {len(errors)} | "
                f"{row.get('num_checks', 1)} x | {kept} | {busy} |"
            )
    worst = f"the worst of the others takes {max(over):.1%}." if over else "all were."
    return _TEXT.format(
        share=SHARE,
        rows="\n".join(rows),
        tolerance=worst,
        estimates="\n".join(_estimates(results)),
        missing=f"Not measured: {', '.join(missing)}." if missing else "",
    )


def _estimates(results: Results) -> list[str]:
    """Rows of the table of estimates."""
    rows = []
    for name, row in results.rows("estimates").items():
        network, divisor, runtime = name.rsplit(" ", 2)
        cells = [network, divisor, runtime, f"{row['fitted']}, {row['unseen']}"]
        for clock in ("clock", "processor"):
            cells += [", ".join(f"{each:.1%}" for each in row[f"{clock}, {kind}"]) for kind in ("plain", "steps")]
            noise = row[f"{clock}, noise"]
            cells.append("-" if noise is None else f"{noise:.1%}")
        rows.append(f"| {' | '.join(cells)} | {row['load']:.0f} |")
    return rows
