"""The slim models of a finished run as one file of a release.

    python -m tools.release.models runs/demo build/release

writes `cafenet-models.tar.gz`: a `NAME.pt` for each model but the original, and `models.json` with its widths, costs
and test accuracy, and the line that loads it. Each file is read back and compared with the run's model first.
"""

import argparse
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

import cafenet
from cafenet.common.read_files import read_file
from cafenet.common.run_files import RECIPE, RESULTS
from cafenet.common.run_places import SLIM, model_place
from cafenet.pipeline.entries import read_entries
from cafenet.runs.final_models import load_final
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.workload import Workload

ARCHIVE = "cafenet-models"
_COSTS = ("flops", "params", "widths", "accuracies")


def main() -> None:
    """Pack the models of a run."""
    parser = argparse.ArgumentParser(description="Pack the slim models of a finished run for a release.")
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("output", type=Path, help="directory of the release")
    args = parser.parse_args()
    print(pack(args.run, args.output))


def pack(run: Path, output: Path) -> Path:
    """Write the archive with the slim models of a run.

    Args:
        run: Run directory, whose trainings have ended.
        output: Directory of the archive.

    Returns:
        The archive.
    """
    recipe = load_recipe(str(run / RECIPE.name))
    workload, seed = Workload(recipe), recipe.finetune.seeds[0]
    rows = {(row["method"], row["budget"]): row for row in read_file(RESULTS, run)["rows"]}
    options = "".join(f", {name}={value!r}" for name, value in recipe.model.options.items())
    network = f'cafenet.load_model("{recipe.model.name}"{options})'
    document: dict[str, Any] = {"version": cafenet.__version__, "data": recipe.data.source, "models": {}}
    with tempfile.TemporaryDirectory() as place:
        for entry in (each for each in read_entries(run) if each.channels is not None):
            name = f"{entry.key}.pt"
            content = (model_place(run, entry.key, seed) / SLIM).read_bytes()
            (Path(place) / name).write_bytes(content)
            _check(Path(place) / name, workload, load_final(workload, entry, seed, run))
            row = rows[entry.method, entry.budget]
            shown = {key: row[key] for key in _COSTS}
            document["models"][name] = {**shown, "load": f'cafenet.load("{name}", {network})'}
        (Path(place) / "models.json").write_text(json.dumps(document, indent=1) + "\n")
        output.mkdir(parents=True, exist_ok=True)
        output.mkdir(parents=True, exist_ok=True)
        Path(place).chmod(0o755)  # a temporary directory is its owner's alone
        archive = output / f"{ARCHIVE}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(place, arcname=ARCHIVE)
    return archive


def _check(file: Path, workload: Workload, expected: torch.nn.Module) -> None:
    """Refuse a file that does not give the outputs of the run's model when it is loaded as users do."""
    model = cafenet.load(file, workload.build(0)).eval()
    with torch.no_grad():
        found, wanted = model(workload.example), expected.cpu().eval()(workload.example)
    if not torch.equal(found, wanted):
        raise SystemExit(f"{file.name} differs from the model of the run by {(found - wanted).abs().max():.2g}")


if __name__ == "__main__":
    main()
