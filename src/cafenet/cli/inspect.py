"""`cafenet inspect`: the widths of a model that can vary, and the cost of each channel."""

import argparse
import json
import time
from typing import Any

from cafenet.common.limits import check_input_size
from cafenet.errors import RecipeError

_MODEL_HELP = (
    "cafenet:NAME, torchvision:NAME, timm:NAME, hf:NAME_OR_PATH, path/to/file.py:FACTORY or package.module:FACTORY"
)

_EPILOG = """\
examples:
  cafenet inspect torchvision:mobilenet_v2
  cafenet inspect torchvision:resnet50 --freeze layer4 --freeze '*.conv1' --min-width 8
  cafenet inspect ./net.py:build --input 1,28,28      # def build() -> nn.Module in your own file
  cafenet inspect timm:resnet50 --json > resnet50.json
  cafenet inspect hf:BertForMaskedLM --input 64       # 64 tokens; hf:./directory for a model of your own

words:
  width group    channels that are decided together as one width, such as the two sides of a residual add
  divisor        a width is a multiple of it, as the channels of a grouped convolution come in groups
  FLOPs share    share of the model's FLOPs in layers that read or write the group; most layers read one group and
                 write another and count for both, so that all shares add up to more than 100%
  FLOPs per channel
                 FLOPs that one channel of the group causes at full width (its sensitivity)
  bin            the smallest run of neighbouring channels that is added or dropped together; beta sets its size
  frozen         a layer that keeps its number of channels, with the reason
One multiply-add counts as 1 FLOP, as in the paper.
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    inspect = commands.add_parser(
        "inspect",
        help="show which widths of a model can vary, and what each channel costs",
        description="Trace a model once and show its width groups, their costs, and what is frozen and why.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.set_defaults(command_function=_inspect)
    inspect.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    inspect.add_argument(
        "--input",
        type=input_size,
        metavar="3,224,224",
        help="size of one input, without the batch dimension (default: the size the model was published for)",
    )
    inspect.add_argument(
        "--freeze",
        action="append",
        default=[],
        metavar="LAYER",
        help="keep the widths of layers with this name or in this module, as in layer4 or '*.se'; can be repeated",
    )
    inspect.add_argument(
        "--min-width",
        type=_min_width,
        default=1,
        metavar="N",
        help="fewest channels a group may keep, or their share, as in 8 or 0.25 (default: 1)",
    )
    inspect.add_argument(
        "--outputs",
        action="append",
        metavar="NAME",
        help="an output of the model that matters, as in logits or 0, so that the others need not keep their size; "
        "can be repeated (default: all)",
    )
    inspect.add_argument(
        "--head-sizes",
        action="store_true",
        help="let the size of attention heads vary, too, beside their number (default: the number alone)",
    )
    inspect.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the model once more with every group cut, and freeze groups that cannot be cut (default: yes)",
    )
    inspect.add_argument(
        "--beta",
        type=float,
        default=1.0,
        metavar="BETA",
        help="channels per bin of the group whose channels cost most (default: 1)",
    )
    inspect.add_argument(
        "--divisor",
        type=int,
        default=1,
        metavar="N",
        help="make bin sizes multiples of N, for hardware that prefers multiples of 8, for example (default: 1)",
    )
    inspect.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def input_size(text: str) -> tuple[int, ...]:
    """Parse a size such as 3,224,224.

    Args:
        text: The argument.

    Returns:
        The numbers.

    Raises:
        argparse.ArgumentTypeError: If one is no positive whole number.
    """
    try:
        size = tuple(int(part) for part in text.split(","))
    except ValueError:
        size = ()
    if not size or min(size) < 1:
        raise argparse.ArgumentTypeError(f"must be positive whole numbers, as in 3,224,224, but got {text!r}")
    return size


def _min_width(text: str) -> int | float:
    """Parse a number of channels or a share."""
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, as in 8 or 0.25, but got {text!r}") from None


def _inspect(args: argparse.Namespace) -> None:
    """Trace the model and print what was found."""
    from rich.console import Console

    from cafenet.cli.table import print_inspection
    from cafenet.models import example_inputs_of, load_model, main_input
    from cafenet.space.bins import flops_sensitive_bins
    from cafenet.space.summary import Inspection, as_document
    from cafenet.tracing.tracer import trace

    if args.input is not None:
        check_input_size(args.input, RecipeError)
    model = load_model(args.model)
    example = example_inputs_of(args.model, model, args.input)
    start = time.perf_counter()
    space = trace(
        model,
        example,
        freeze=args.freeze,
        min_width=args.min_width,
        outputs=args.outputs,
        head_sizes=args.head_sizes,
        verify=args.verify,
    )
    seconds = time.perf_counter() - start
    bins = flops_sensitive_bins(space, args.beta, divisor=args.divisor)
    inspection = Inspection(
        args.model, tuple(main_input(example).shape[1:]), space, bins, args.beta, args.verify, seconds
    )
    if args.json:
        print(json.dumps(as_document(inspection), indent=2))
    else:
        print_inspection(inspection, Console(markup=False))
