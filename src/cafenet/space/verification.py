"""The check of a width space on real values.

Random channels are dropped from the model under random weights, in float64 if the model allows it. Three results must
be equal: the run in place, the run of the extracted slim model and, if nothing normalises or reduces across the dropped
channels, the run of the full model with the parameters of these channels set to zero. FLOPs and parameters must equal a
count on the slim model while it runs, which knows nothing of the trace (see `cafenet.modules.counting`).
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from cafenet.common.options import PositiveInt, Seed, check_arguments
from cafenet.errors import TraceError
from cafenet.modules.calling import as_written, call, training_mode
from cafenet.modules.counting import ProductCounter
from cafenet.modules.inputs import call_arguments, copied
from cafenet.modules.outputs import chosen_outputs
from cafenet.modules.randomness import fixed_randomness
from cafenet.modules.snapshot import unchanged
from cafenet.modules.tensors import named_tensors
from cafenet.modules.unwrapping import expect_values
from cafenet.space.extraction import extract
from cafenet.space.layout import Cut, Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors
from cafenet.space.width_space import TracedSpace, WidthSpace

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3}


@dataclass
class Verification:
    """The outcome of `verify`."""

    trials: int
    """Number of random subnets that were compared, in each of the two ways."""
    dtype: torch.dtype
    """Number type of the comparison: float64, or float32 if the model's forward insists on it."""
    max_extract_error: float = 0.0
    """Largest difference between the run in place and the extracted model, relative to the largest output."""
    max_masked_error: float = 0.0
    """Largest difference between the run in place and the masked model, relative to the largest output."""
    problems: list[str] = field(default_factory=list)
    """One sentence for each disagreement. The list is empty if the width space is right."""

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


@torch.inference_mode(False)
def verify(space: WidthSpace, example_inputs: Any, *, trials: int = 2, seed: int = 0) -> Verification:
    """Compares runs in place, extracted models and masked models of random subnets, and their counted costs.

    Args:
        space: The width space to check. Its model is not changed.
        example_inputs: Inputs as for `trace`. Only their shapes matter for floating-point tensors, whose values are
            random.
        trials: Number of random subnets.
        seed: Seed of the weights, the inputs and the subnets.

    Returns:
        The largest differences, and the problems that were found.

    Raises:
        TraceError: If an argument is not valid, or if the model is on the meta device.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> images = torch.zeros(1, 3, 8, 8)
        >>> result = cafenet.verify(cafenet.trace(model, images), images)
        >>> result.ok, result.problems, result.dtype
        (True, [], torch.float64)
    """
    check_arguments(TraceError, space=(space, TracedSpace), trials=(trials, PositiveInt), seed=(seed, Seed))
    expect_values(space.model, TraceError)
    args, kwargs = call_arguments(example_inputs)
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    for dtype in (torch.float64, torch.float32):
        tensors = {name: _random(t, name, dtype, generator) for name, t in named_tensors(space.model).items()}
        inputs = tree_map(functools.partial(_cast, dtype=dtype, generator=generator), (args, kwargs))
        try:
            _run_full(space.model, tensors, inputs)
        except RuntimeError:  # the forward itself insists on float32 somewhere
            continue
        break
    result = Verification(trials, dtype)
    with unchanged(space.model, outside=True):  # a hook's closure is not copied: a slim model could write to the model
        for _ in range(trials):
            for check, mixing in ((_check_extracted, True), (_check_masked, False)):
                subnet = _random_subnet(space, rng, mixing)
                try:
                    check(space, tensors, inputs, subnet, result)
                except Exception as error:  # a subnet that cannot run is what this function is here to find
                    result.problems.append(f"a subnet raised {type(error).__name__}: {error}")
    return result


def _check_extracted(
    space: WidthSpace, tensors: dict[str, Tensor], inputs: Any, subnet: Subnet, result: Verification
) -> None:
    chosen = cuts(space.layout, subnet)
    in_place = _run_cut(space, tensors, inputs, chosen)
    widths = {g.name: u.size * g.divisor for g, u in zip(space.groups, subnet.units, strict=True)}
    slim = extract(space.model, space.layout, subnet, widths, {}, tensors=tensors)
    args, kwargs = copied(inputs)
    with torch.no_grad(), fixed_randomness(0), training_mode(slim, False), as_written(), ProductCounter() as counter:
        extracted = slim(*args, **kwargs)
    error = _difference(space, in_place, extracted, result)
    result.max_extract_error = max(result.max_extract_error, error)
    if not error <= TOLERANCE[result.dtype]:
        result.problems.append(f"the extracted model differs from the run in place by {error:.1e}")
    _check_costs(space, slim, counter, widths, result)


def _check_costs(
    space: WidthSpace, slim: nn.Module, counter: ProductCounter, widths: dict[str, int], result: Verification
) -> None:
    counted = (counter.total, sum(parameter.numel() for parameter in slim.parameters()))
    priced = (space.flops(widths), space.params(widths))
    if counted != priced:
        result.problems.append(f"FLOPs and params are priced at {priced}, but the slim model has {counted}")
    if counter.uncounted:
        result.problems.append(
            f"FLOPs must count every product, but no formula counts {', '.join(sorted(counter.uncounted))}; register "
            "one with torch.utils.flop_counter.register_flop_formula (0 if it multiplies nothing)"
        )


def _check_masked(
    space: WidthSpace, tensors: dict[str, Tensor], inputs: Any, subnet: Subnet, result: Verification
) -> None:
    chosen = cuts(space.layout, subnet)
    parameters = {name for name, _ in space.model.named_parameters()}
    masked = {
        name: _masked(space, name, tensor, chosen) if name in parameters else tensor for name, tensor in tensors.items()
    }
    error = _difference(space, _run_cut(space, tensors, inputs, chosen), _run_full(space.model, masked, inputs), result)
    result.max_masked_error = max(result.max_masked_error, error)
    if not error <= TOLERANCE[result.dtype]:
        result.problems.append(f"the sliced model differs from the masked one by {error:.1e}")


def _masked(space: WidthSpace, name: str, tensor: Tensor, chosen: tuple[Cut, ...]) -> Tensor:
    dims = space.layout.axes.get(name, {})
    if not dims:
        return tensor
    tensor = tensor.clone()
    for dim, pattern in dims.items():
        dropped = np.ones(tensor.shape[dim], dtype=bool)
        dropped[chosen[pattern].positions] = False
        tensor.index_fill_(dim, torch.from_numpy(np.flatnonzero(dropped)), 0)
    return tensor


def _run_cut(space: WidthSpace, tensors: dict[str, Tensor], inputs: Any, chosen: tuple[Cut, ...]) -> Any:
    with Harness(space.model, space.layout).patched(chosen):
        return _run_full(space.model, slice_tensors(tensors, space.layout, chosen), inputs)


def _run_full(model: nn.Module, tensors: dict[str, Tensor], inputs: Any) -> Any:
    with torch.no_grad(), fixed_randomness(0), training_mode(model, False):
        return call(model, copied(tensors), *copied(inputs))


def _random_subnet(space: WidthSpace, rng: np.random.Generator, mixing: bool) -> Subnet:
    """Draws random units of every group; if `mixing` is false, groups that are normalised across channels stay
    whole.
    """
    units = []
    for group in space.groups:
        count = group.channels // group.divisor
        low = group.min_width // group.divisor
        size = count if group.mixes and not mixing else int(rng.integers(low, count, endpoint=True))
        units.append(np.sort(rng.choice(count, size=size, replace=False)))
    return Subnet(tuple(units))


def _random(tensor: Tensor, name: str, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draws values under which every channel matters: scales and variances around 1, and weights that keep the
    signal's size.
    """
    if not _has_fractions(tensor):
        return tensor
    if tensor.is_complex():
        dtype = dtype.to_complex()
    elif name.endswith("running_var") or (tensor.ndim <= 1 and name.endswith("weight")) or _is_positive(tensor):
        return 0.5 + torch.rand(tensor.shape, generator=generator, dtype=dtype)
    fan_in = max(1, tensor.numel() // tensor.shape[0]) if tensor.ndim > 1 else 16
    return torch.randn(tensor.shape, generator=generator, dtype=dtype).div_(fan_in**0.5)


def _is_positive(tensor: Tensor) -> bool:
    """Whether the model may rely on values above zero, because it divides by them or takes their root."""
    return not tensor.is_meta and bool((tensor > 0).all())


def _cast(leaf: Any, dtype: torch.dtype, generator: torch.Generator) -> Any:
    if isinstance(leaf, Tensor) and _has_fractions(leaf):
        return torch.randn(leaf.shape, generator=generator, dtype=dtype.to_complex() if leaf.is_complex() else dtype)
    return leaf


def _has_fractions(tensor: Tensor) -> bool:
    """Whether a tensor holds real or complex numbers, which random values may replace."""
    return tensor.is_floating_point() or tensor.is_complex()


def _difference(space: WidthSpace, left: Any, right: Any, result: Verification) -> float:
    """Largest difference, relative to the largest value; an output without information is itself a problem."""
    chosen = (chosen_outputs(each, space.outputs) for each in (left, right))
    pairs = [(a, b) for (_, a), (_, b) in zip(*chosen, strict=True) if _has_fractions(a)]
    if not pairs:
        result.problems.append("the model returns no floating-point tensor, so nothing was compared")
    worst, compared = 0.0, False
    for a, b in pairs:
        if a.shape != b.shape:
            result.problems.append(f"outputs have shapes {list(a.shape)} and {list(b.shape)}")
            return float("inf")
        if not (a.any() or b.any()):  # all zero, and so without information: a loss that is off, an initial state
            continue
        scale = float(a.abs().max())
        if not np.isfinite(scale) or scale == 0:
            result.problems.append(f"the output is {scale} under random weights, so nothing was compared")
            return float("inf")
        worst, compared = max(worst, float((a - b).abs().max()) / scale), True
    if pairs and not compared:
        result.problems.append("the output is 0.0 under random weights, so nothing was compared")
        return float("inf")
    return worst
