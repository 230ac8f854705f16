"""CafeNet under accidents and mistakes: kills, damaged files, wrong inputs, hostile files, models left unchanged.

    python -m benchmarks.reliability                                # all parts, about an hour on one core
    python -m benchmarks.reliability --parts kills damaged          # only these
    python -m benchmarks.reliability --parts damaged --only '*manifest.json*' --output build/some.json
    python -m benchmarks.reliability --parts                        # only the page

Every outcome goes to benchmarks/reliability/results.json at once, and a second start tries what has none yet; --fresh
forgets them all. Each says of which revision it is; the package must be the one of this checkout.
docs/reliability.md is made of them. `--only` tries the cases of matching names again and says what
came out.
"""

import argparse
import importlib
import shutil
from pathlib import Path

from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.reliability.cases import measure, measured_revision
from benchmarks.reliability.children import preload
from benchmarks.reliability.page import PARTS, markdown


def main() -> None:
    """Try what has no outcome yet, then write the page."""
    options = _parser().parse_args()
    measured = measured_revision()
    results = Results(options.output, fresh=options.fresh)
    if options.fresh:
        shutil.rmtree(options.scratch, ignore_errors=True)
    preload()
    for name in options.parts:
        part = importlib.import_module(f"benchmarks.reliability.{name}").PART
        measure(part, results, options.scratch.resolve(), measured, options.only)
    if options.only is None:
        options.page.write_text(markdown(results), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", metavar="PATTERN", help="try the cases of these names, also those with an outcome")
    parser.add_argument("--fresh", action="store_true", help="forget all outcomes")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "bench-reliability")
    parser.add_argument("--output", type=Path, default=kept_results("reliability"))
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "reliability.md")
    return parser


if __name__ == "__main__":
    main()
