"""`cafenet export`: a final model of a run as a file for deployment."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cafenet.cli.paths import some_path
from cafenet.errors import RecipeError
from cafenet.space.export_formats import ALIASES, ENDINGS, FORMATS

if TYPE_CHECKING:
    from torch import nn

    from cafenet.runs.workload import Workload


_EPILOG = """\
examples:
  cafenet export runs/demo --method Uniform model.onnx
  cafenet export runs/demo model --format onnx,openvino,executorch,pt2
  cafenet export runs/demo model --format onnx,openvino --quantize int8
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "export",
        help="write a final model of a run for a runtime, checked after writing",
        description="Write a trained slim model of a run for deployment; its outputs are compared after writing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_DIR", type=some_path, help="directory of a run or a search")
    parser.add_argument(
        "file",
        metavar="FILE",
        type=some_path,
        help="where to write; the format follows its ending, or the endings follow --format",
    )
    parser.add_argument("--method", help="a method of the run's table (default: the first search of the run)")
    parser.add_argument("--budget", help="one of the run's budgets (default: the first)")
    parser.add_argument("--seed", type=int, help="one of the run's seeds (default: the first)")
    parser.add_argument(
        "--format",
        type=_formats,
        metavar="FORMAT,...",
        help=f"in place of the file's ending: {', '.join(FORMATS)}; several write a file each",
    )
    parser.add_argument(
        "--quantize",
        choices=("int8",),
        help="round weights and activations to 8 bits, calibrated on training data; the accuracy on validation data is "
        "printed",
    )
    parser.add_argument(
        "--fixed-batch", action="store_true", help="make a .pt2 or .onnx file that takes one input at a time"
    )
    parser.set_defaults(command_function=_export)


def _formats(text: str) -> tuple[str, ...]:
    """Parse formats such as onnx,openvino."""
    names = tuple(ALIASES.get(part.strip(), part.strip()) for part in text.split(","))
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(FORMATS)}, but got {', '.join(unknown)}")
    return names


def _export(args: argparse.Namespace) -> None:
    """Find the model of a run, export it and print the difference of outputs."""
    from cafenet.common.read_files import read_file
    from cafenet.common.run_files import RECIPE
    from cafenet.common.run_places import SLIM, expect_maker, maker_of, model_place
    from cafenet.pipeline.entries import read_entries
    from cafenet.runs.final_models import load_final
    from cafenet.runs.recipe_files import load_recipe
    from cafenet.runs.workload import Workload
    from cafenet.searching.algorithms.base import METHODS
    from cafenet.space.export import export

    if not (args.run / RECIPE.name).exists():
        raise RecipeError(f"{args.run} must be a run directory, but has no recipe.yaml; see `cafenet run`")
    document = read_file(RECIPE, args.run)
    if maker_of(document) == "cafenet.search":
        raise RecipeError(
            f"a run directory of `cafenet run` is needed, but {args.run} holds a search; call result.export(FILE), or "
            "cafenet.export on the model that cafenet.load reads from a slim.pt"
        )
    expect_maker(args.run, document, "cafenet run")
    recipe = load_recipe(str(args.run / RECIPE.name))
    workload = Workload(recipe)
    method = args.method or METHODS[recipe.algorithms[0]]
    entries = [
        entry for entry in read_entries(args.run) if entry.method == method and args.budget in (None, entry.budget)
    ]
    if not entries:
        known = sorted({f"{entry.method} {entry.budget}".strip() for entry in read_entries(args.run)})
        wanted = f"{method} {args.budget or ''}".strip()
        raise RecipeError(f"the run has no {wanted}; it has {', '.join(known)}")
    seed = recipe.finetune.seeds[0] if args.seed is None else args.seed
    if not (model_place(args.run, entries[0].key, seed) / SLIM).exists():
        name = f"{entries[0].method} {entries[0].budget}".strip()
        raise RecipeError(f"the run has no trained {name} of seed {seed}; it may lack `cafenet finetune`, or the seed")
    model = load_final(workload, entries[0], seed, args.run)
    for kind, path in _files(args.file, args.format):
        difference = export(
            model,
            workload.example,
            path,
            kind,
            fixed_batch=args.fixed_batch,
            quantize=args.quantize,
            calibration=workload.loader(workload.train) if args.quantize else None,
        )
        note = _accuracies(workload, model, path) if args.quantize else ""
        print(f"{path}: {entries[0].method} {entries[0].budget}, largest difference of outputs {difference:.2g}{note}")


def _files(path: Path, kinds: tuple[str, ...] | None) -> list[tuple[str | None, Path]]:
    """Return the formats and files to write; several formats get endings of their own."""
    if kinds is None or len(kinds) == 1:
        return [(kinds[0] if kinds else None, path)]
    return [(kind, path.with_name(f"{path.name}.{ENDINGS.get(kind, kind)}")) for kind in kinds]


def _accuracies(workload: "Workload", model: "nn.Module", path: Path) -> str:
    """Return the accuracies on validation data of the file and of the model in words."""
    from cafenet.runtimes.file_model import FileModel
    from cafenet.scoring.evaluation import evaluate

    found, whole = (
        evaluate(each, workload.loader(workload.validation), loss=workload.recipe.loss)["accuracy"]
        for each in (FileModel(path, batch_size=1), model.cpu())
    )
    return f", accuracy on validation data {found:.2%}, of the model {whole:.2%}"
