"""Uniform width scaling: one factor for every layer, chosen by hand or so that the network has a given number of FLOPs.

In the paper's ImageNet results, EfficientNet-B0 at 1.0x is searched from a supernet of 1.5x the FLOPs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from cafenet.errors import CafeNetError
from cafenet.tracing.tracer import trace

_MAX_DEVIATION = 0.05
_NUM_HALVINGS = 14  # the bracket shrinks to a 16,000th, far below one step of the rounding to multiples of 8
_WIDTH_RANGE = (1 / 64, 64.0)


def scale_channels(channels: int, width: float, divisor: int = 8) -> int:
    """Return the multiple of `divisor` nearest to `channels * width`, but at least 90% of it, as MobileNet rounds.

    Args:
        channels: Number of channels at width 1.
        width: Factor on the width.
        divisor: The result is a multiple of this number.

    Returns:
        The number of channels. `scale_channels(24, 0.75)` is 24 (16 is nearer to 18, but less than 90% of it);
        `scale_channels(64, 0.5)` is 32.

    Raises:
        CafeNetError: If the width is not positive and finite.
    """
    if not (math.isfinite(width) and width > 0):
        raise CafeNetError(f"a width factor must be positive and finite, but got {width!r}")
    wanted = channels * width
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def scale_to_flops(
    build: Callable[[float], nn.Module], example_inputs: Any, flops_factor: float
) -> tuple[nn.Module, float]:
    """Build the network whose FLOPs are nearest to a multiple of those at width 1.

    For plain convolutions, whose FLOPs grow with the square of the width, a factor of 4 gives a width of 2.

    Args:
        build: Builds a network from a width factor. Larger factors must give wider networks; widths may be rounded, as
            all builders of this package do.
        example_inputs: Inputs for which FLOPs are counted.
        flops_factor: The wanted multiple of the FLOPs of `build(1.0)`.

    Returns:
        The network and its width factor.

    Raises:
        CafeNetError: If the factor is not positive and finite, or no width comes within 5% of the FLOPs.
    """
    if not (math.isfinite(flops_factor) and flops_factor > 0):
        raise CafeNetError(f"flops_factor must be positive and finite, but got {flops_factor!r}")

    def flops_of(width: float) -> int:
        return trace(_without_weights(build, width), example_inputs, verify=False).flops()

    target = flops_factor * flops_of(1.0)
    width, flops = _nearest(flops_of, target, math.sqrt(flops_factor))
    if abs(flops / target - 1) > _MAX_DEVIATION:
        raise CafeNetError(
            f"a scaled network must come within {_MAX_DEVIATION:.0%} of {target / 1e6:.1f}M FLOPs, but the nearest "
            f"width factor, {width:.4g}, has {flops / 1e6:.1f}M; the builder ignores its width or rounds too coarsely"
        )
    return build(width), width


def _nearest(flops_of: Callable[[float], int], target: float, guess: float) -> tuple[float, int]:
    """Return the width whose FLOPs are nearest to the target, by bisection; among equally near ones, the first seen."""
    seen: dict[float, int] = {}

    def is_below(width: float) -> bool:
        seen[width] = flops_of(width)
        return seen[width] < target

    low = high = min(max(guess, _WIDTH_RANGE[0]), _WIDTH_RANGE[1])
    if is_below(guess):
        while high < _WIDTH_RANGE[1] and is_below(high := high * 1.25):
            low = high
    else:
        while low > _WIDTH_RANGE[0] and not is_below(low := low / 1.25):
            high = low
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return min(seen.items(), key=lambda item: abs(item[1] - target))


def _without_weights(build: Callable[[float], nn.Module], width: float) -> nn.Module:
    """Build a network for counting, without memory or time for weights unless its code needs values."""
    try:
        with torch.device("meta"):
            return build(width)
    except (RuntimeError, NotImplementedError):
        return build(width)
