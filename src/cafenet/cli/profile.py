"""`cafenet profile`: where the milliseconds of a model go in the runtime that will serve it."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from cafenet.cli.inspect import input_size
from cafenet.common.limits import check_input_size
from cafenet.errors import RecipeError

_EPILOG = """\
examples:
  cafenet profile torchvision:mobilenet_v2 --input 3,96,96 --runtime onnxruntime
  cafenet profile ./net.py:build --input 1,28,28 --runtime 'command:onnx ./measure.sh {file}'

Each width group is measured at half of its channels and at nine tenths, in turns with the full model. Each is exported
to the runtime anew, so a model with 30 groups takes some minutes.
"""


def add_to(commands: Any) -> None:
    """Declare the command.

    Args:
        commands: The subparsers of the `cafenet` command.
    """
    parser = commands.add_parser(
        "profile",
        help="show which width groups cost the milliseconds in a runtime",
        description="Measure what fewer channels of each width group save in the runtime that will serve the model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command_function=_profile)
    parser.add_argument("model", metavar="MODEL", help="a model by name, as for `cafenet inspect`")
    parser.add_argument("--input", type=input_size, metavar="3,224,224", help="size of one input, without the batch")
    parser.add_argument(
        "--freeze",
        action="append",
        default=[],
        metavar="LAYER",
        help="keep the widths of layers with this name, as in '*.se'; can be repeated",
    )
    parser.add_argument(
        "--runtime",
        default="torch",
        help="torch, torch.compile, onnxruntime, openvino, executorch or 'command:FORMAT PROGRAM {file}' "
        "(default: torch)",
    )
    parser.add_argument("--batch-size", type=int, default=1, metavar="N", help="examples per pass (default: 1)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of an operator (default: 1)")
    parser.add_argument("--repeats", type=int, default=30, metavar="N", help="passes that count (default: 30)")
    parser.add_argument(
        "--quantize", choices=["int8"], help="measure the int8 file in the runtime (default: the model as it is)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def _profile(args: argparse.Namespace) -> None:
    """Trace the model, measure every group and print the table."""
    from cafenet.common.run_log import RunLog
    from cafenet.models import example_inputs_of, load_model
    from cafenet.searching.latency.measure import LatencyConfig, check_runtime
    from cafenet.searching.latency.profile import profile_latency
    from cafenet.tracing.tracer import trace

    if args.input is not None:
        check_input_size(args.input, RecipeError)
    settings = LatencyConfig(
        runtime=args.runtime,
        batch_size=args.batch_size,
        num_threads=args.threads,
        repeats=args.repeats,
        quantize=args.quantize,
    )
    model = load_model(args.model)
    example = example_inputs_of(args.model, model, args.input)
    check_runtime(model, example, settings)
    space = trace(model, example, freeze=args.freeze)
    progress = RunLog(None, len(space.groups), title="profile", quiet=args.json)
    progress.start(0)
    try:
        found = profile_latency(space, example, settings, progress.show)
    finally:
        progress.close()
    print(json.dumps(asdict(found), indent=2) if args.json else found.shown().text())
