"""`cafenet slim`: from a trained model, its weights and data to a slim model, without a recipe."""

import argparse
import sys
from pathlib import Path
from typing import Any

from cafenet.cli.paths import some_path
from cafenet.common.loggers import LOG_HELP, logger_name
from cafenet.common.run_places import SEARCHED, SLIM
from cafenet.errors import DataError, ModelNameError

_LIBRARIES = ("torchvision", "timm", "hf", "cafenet")
"""Sources of models whose number of outputs is a library's choice unless it is given."""

_EPILOG = """\
examples:
  cafenet slim net.py:Net --weights net.pt --data folder:images --budget 50% --output runs/net
  cafenet slim net.py:Net --weights net.pt --data fashion --budget 25% --effort quick

what happens:
  The model's score tells whether it is trained. A supernet begins with its weights, widths are scored on a tenth of the
  training data, and the best within the budget become the slim model, which is fine-tuned. A Uniform model (all layers
  narrowed alike, same fine-tuning) shows what the search is worth. All are tested on the test data.
  The plan with its times is printed first. A second start of the same command continues.

the output directory:
  slim.pt       the slim model, for cafenet.load("slim.pt", Net())
  searched.pt   the model with the widths found, if slim.pt has Uniform's, which were better on the validation data
  report.html   the report
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "slim",
        help="make a trained model smaller, within a budget",
        description="Make a trained model smaller, within a budget, and say what was gained.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command_function=_slim)
    parser.add_argument("model", metavar="MODEL", help="path/to/file.py:FACTORY, torchvision:NAME, timm:NAME, ...")
    parser.add_argument(
        "--weights", type=some_path, metavar="FILE", help="state dict of the trained model (default: as built)"
    )
    parser.add_argument(
        "--data", required=True, metavar="SOURCE", help="folder:PATH, npz:PATH, cifar10:PATH or fashion"
    )
    parser.add_argument(
        "--num-classes", type=int, metavar="N", help="given to the FACTORY as num_classes (default: as it builds)"
    )
    parser.add_argument("--budget", default="50%", help="50%%, 150M, '1.5M params' or 12ms (default: 50%%)")
    parser.add_argument(
        "--output",
        type=some_path,
        default=Path("runs/slim"),
        metavar="DIR",
        help="output directory (default: runs/slim)",
    )
    parser.add_argument(
        "--effort", choices=("quick", "normal", "thorough"), default="normal", help="amount of work (default: normal)"
    )
    parser.add_argument("--batch-size", type=int, default=128, metavar="N", help="examples per step (default: 128)")
    parser.add_argument(
        "--image-size",
        type=_image_size,
        metavar="H,W",
        help="scale images to this size (default: what the model was published for, or as they are)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random numbers (default: 0)")
    parser.add_argument(
        "--log",
        action="append",
        type=logger_name,
        default=[],
        metavar="KIND:PATH",
        help=LOG_HELP,
    )
    parser.add_argument(
        "--distill", action="store_true", help="let the slim model also learn the outputs of the trained model"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but the result")


def _slim(args: argparse.Namespace) -> None:
    """Search, save the slim model, print what was gained and write the report."""
    if args.weights is not None and not args.weights.is_file():
        raise ModelNameError(f"--weights must be a file with a state dict, but {args.weights} is not there")
    if "," in args.budget:
        raise DataError(f"slim takes one budget, but got {args.budget!r}; start it once for each")
    from cafenet.data import load_data
    from cafenet.models import load_model, load_weights
    from cafenet.pipeline.search import search
    from cafenet.report.run_page import write_report
    from cafenet.space.slim_file import save
    from cafenet.training.config import TrainConfig

    TrainConfig(batch_size=args.batch_size)  # refuses a size that is none before anything is read
    model = load_model(args.model, **({} if args.num_classes is None else {"num_classes": args.num_classes}))
    if args.weights is not None:
        load_weights(model, args.weights)
    sets = load_data(args.data)
    train, validation, test = _loaders(args, sets)
    _check_classes(args, model, validation, len(sets.train.classes))
    result = search(
        model,
        train,
        validation,
        args.budget,
        effort=args.effort,
        distill=args.distill,
        test_data=test,
        seed=args.seed,
        directory=args.output,
        loggers=args.log,
        quiet=args.quiet,
    )
    result.save(args.output / SLIM)
    print(result)
    if result.is_uniform and result.searched is not None:
        save(result.searched, args.output / SEARCHED)
        print(f"The model with the widths that the search found is {args.output / SEARCHED}.")
    print(f"The slim model is {args.output / SLIM}, the report {write_report(args.output)}.")


def _check_classes(args: argparse.Namespace, model: Any, validation: Any, classes: int) -> None:
    """Refuse a model that has fewer outputs than there are classes, or as many as a library chose for its own data.

    More outputs are fine if they were asked for, or if the model is the user's own: its data may lack a class.
    """
    import torch

    from cafenet.modules.calling import training_mode
    from cafenet.modules.snapshot import unchanged
    from cafenet.modules.tensors import tensor_without_size

    if tensor_without_size(model) is not None:
        return  # a run would give it one, and the search refuses a model that has not run before
    try:
        with unchanged(model), training_mode(model, False), torch.no_grad():
            output = model(next(iter(validation))[0][:1])
    except (RuntimeError, ValueError, TypeError):
        return  # the search says which inputs the model must take
    if not isinstance(output, torch.Tensor) or output.ndim != 2:
        return
    is_chosen = args.num_classes is not None or args.model.partition(":")[0] not in _LIBRARIES
    if output.shape[1] < classes or (output.shape[1] > classes and not is_chosen):
        raise DataError(
            f"the model must have one output a class, but {args.model} has {output.shape[1]} and {args.data} has "
            f"{classes} classes; give --num-classes {classes}"
        )


def _image_size(text: str) -> tuple[int, int]:
    """Parse a size such as 32,32."""
    try:
        height, width = (int(part) for part in text.split(","))
    except ValueError:
        height = width = 0
    if min(height, width) < 1:
        raise argparse.ArgumentTypeError(f"must be height and width, as in 32,32, but got {text!r}")
    return height, width


def _loaders(args: argparse.Namespace, sets: Any) -> tuple[Any, Any, Any]:
    """Return loaders of the training, validation and test data, in the size that the model was published for."""
    from cafenet.data import Augmentation, eval_loader, hold_out, train_loader
    from cafenet.data.loaders import scaling_note
    from cafenet.models import published_input_size

    published = published_input_size(args.model)
    size = args.image_size or (None if published is None else published[1:])
    note = scaling_note(sets.train, size, "--image-size {size} leaves them as they are")
    if note and not args.quiet:
        print(note, file=sys.stderr)
    options: dict[str, Any] = {"size": size}
    train, validation = hold_out(sets.train)
    return (
        train_loader(train, args.batch_size, Augmentation(), **options),
        eval_loader(validation, **options),
        eval_loader(sets.test, **options),
    )
