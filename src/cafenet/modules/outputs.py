"""The parts of a model's output that matter: they keep their sizes, and slim models are compared by them."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from torch import Tensor

from cafenet.errors import TraceError
from cafenet.modules.tensors import tensors_by_path


def output_paths(outputs: Any) -> tuple[str, ...]:
    """Converts the user's choice of outputs to paths.

    Args:
        outputs: A name or index such as `"logits"`, `0` or `"hidden_states.1"`, or several of them, or None for all.

    Returns:
        The paths. An empty tuple means all outputs.

    Raises:
        TraceError: If `outputs` is neither a name, an index nor several of them.
    """
    several = outputs if isinstance(outputs, Sequence) and not isinstance(outputs, str) else [outputs]
    if outputs is None:
        return ()
    if not several or any(isinstance(each, bool) or not isinstance(each, (str, int)) or each == "" for each in several):
        raise TraceError(
            "outputs must be a name or an index in what the model returns, such as 'logits', 0 or 'features.1', or "
            f"several of them, but got {outputs!r}"
        )
    return tuple(map(str, several))


def logits_of(output: Any) -> Any:
    """Finds the class scores in an output.

    Args:
        output: Output of a model.

    Returns:
        The tensor `logits` of an output that has one, as the models of transformers do; else the output itself.
    """
    logits = _entry(output, "logits")
    return logits if isinstance(logits, Tensor) else output


def own_loss_of(output: Any) -> Tensor | None:
    """Finds the loss that a model has computed itself.

    Args:
        output: Output of a model.

    Returns:
        The tensor `loss` of an output that has one, as the models of transformers do if they are given labels.
    """
    loss = _entry(output, "loss")
    return loss if isinstance(loss, Tensor) else None


def _entry(output: Any, name: str) -> Any:
    if isinstance(output, Tensor):
        return None
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def chosen_outputs(output: Any, paths: Sequence[str]) -> list[tuple[str, Tensor]]:
    """Selects the tensors of an output that lie at or under one of the paths.

    Args:
        output: Output of a model.
        paths: Paths from `output_paths`. None of them means all tensors.

    Returns:
        The path and the tensor of each.

    Raises:
        TraceError: If the output has nothing at one of the paths.
    """
    found = list(tensors_by_path(output))
    if not paths:
        return found
    missing = _missing(found, paths)
    if missing:
        names = [each for each, _ in found]
        near = get_close_matches(missing[0], names, n=3, cutoff=0.5)
        shown = f"returns {', '.join(names[:10])}" if names != [""] else "returns one tensor, which needs no name"
        raise TraceError(
            f"outputs must name what the model returns, but {missing[0]!r} is no part of it; it {shown}"
            + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    return [(each, tensor) for each, tensor in found if any(_lies_under(each, path) for path in paths)]


def has_outputs(output: Any, paths: Sequence[str]) -> bool:
    """Whether an output has a tensor at or under each of the paths.

    Args:
        output: Output of a model.
        paths: Paths from `output_paths`.

    Returns:
        True if no path is missing.
    """
    return not _missing(list(tensors_by_path(output)), paths)


def _missing(found: Sequence[tuple[str, Tensor]], paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not any(_lies_under(each, path) for each, _ in found)]


def _lies_under(path: str, around: str) -> bool:
    return path == around or path.startswith(f"{around}.")


def output_reason(path: str, is_choice: bool) -> str:
    """Gives the reason why the channels of an output are kept and, if other outputs exist, a remedy.

    Args:
        path: Path of the output.
        is_choice: Whether the user could choose among several outputs.

    Returns:
        The clause that the user reads.
    """
    if not is_choice:
        return "is an output of the model"
    return f"is an output of the model ({path}); pass outputs= with those that matter to let the others vary"
