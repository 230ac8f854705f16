"""Prices of all products: the cost of ops that multiply and whose rule charges nothing.

FLOPs are the multiply-adds of products: convolutions, matrix products, attention, recurrent layers and distances.
Elementwise ops are free, as are norms, pooling, interpolation, Fourier transforms and factorisations of matrices. Rules
charge the products whose factors may vary. All other products keep their factors whole, so their cost is one number,
which is computed here. A product without a known price is an error, and is never counted as zero.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from cafenet.errors import TraceError
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import Rule, Run, has_labels

_PRODUCT = re.compile(
    r"(^|_)([a-z0-9]*(mm|mv|dot|matmul|einsum)|conv(olution)?(\dd)?|(bi|tri)?linear|attention|attn|rnn|lstm|gru|mlp"
    r"|encoder|[cp]dist|euclidean)(_|$)"
)
_NO_PRODUCT = re.compile(
    r"backward|upsample|_cell$|flatten_weight|linear_combination|_jvp$|quant_pack|sdp_choice|_search$|_reorder_"
)
_FREE = {f"torchvision::{name}" for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")}
"""Ops of other libraries that read two tensors, but multiply only by interpolation weights."""

_OWN = ("aten", "prim", "prims")


@functools.cache
def multiplies(func: OpOverload) -> bool:
    """Whether an op is a product, judged by its name.

    Args:
        func: The op.

    Returns:
        True for products such as `mm`, `convolution` or `linear`.
    """
    name = func._schema.name.partition("::")[2]
    return _PRODUCT.search(name) is not None and _NO_PRODUCT.search(name) is None


def priced(func: OpOverload, rule: Rule, freezes: bool) -> Rule:
    """Wraps the rule of an op that may be a product: if the rule charges nothing, the whole product is charged.

    Args:
        func: The op.
        rule: The rule of the op.
        freezes: Whether the rule keeps the factors whole, so that their sizes at full width are right at every width.

    Returns:
        The wrapped rule, or the rule itself if the op is no product.
    """
    is_foreign = func.namespace not in _OWN and func._schema.name not in _FREE
    if not multiplies(func) and not (is_foreign and freezes):
        return rule

    def charging(run: Run, call: Call) -> None:
        num_terms, may_vary = len(run.terms), not freezes and any(map(has_labels, call.tensors))
        rule(run, call)
        if len(run.terms) > num_terms or not run.is_priced or not (multiplies(func) or _reads_several(call)):
            return
        if may_vary:
            raise TraceError(
                f"the rule of a product must charge its multiply-adds, but that of {func} in "
                f"{call.path or 'the model'} charged none; call run.cost in it"
            )
        charge_whole(run, call)

    return charging


def _reads_several(call: Call) -> bool:
    return sum(tensor.is_floating_point() and tensor.ndim > 0 for tensor in call.tensors) > 1


def charge_whole(run: Run, call: Call) -> None:
    """Charges a product whose factors keep their sizes.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.

    Raises:
        TraceError: If no formula gives the multiply-adds of the op.
    """
    price = _price(call) if run.is_priced else 0
    if price is None:
        raise TraceError(
            f"every product must have a price, but nothing says how many multiply-adds {call.func} in "
            f"{call.path or 'the model'} takes; register a formula with torch.utils.flop_counter.register_flop_formula "
            "(two for each multiply-add, 0 if it multiplies nothing), or pass a rule that calls run.cost"
        )
    run.cost(price)


def _price(call: Call) -> int | None:
    """Computes the multiply-adds of a product from its shapes, or by the formula that PyTorch or the user has
    registered.
    """
    namespace, _, name = call.func._schema.name.partition("::")
    if namespace in ("aten", "torchvision"):
        found = next((price for names, price in _PRICES.items() if re.fullmatch(names, name)), None)
        if found is not None:
            return found(call)
    formula: Any = flop_registry.get(call.func.overloadpacket)
    return None if formula is None else int(formula(*call.args, **call.kwargs, out_val=call.out)) // 2


def _matrices(call: Call) -> int:
    """Prices `a @ b` of any rank, with b as (..., k, n) or (n, k): the number of results times the shared dimension."""
    a = call.tensors[0]
    return int(call.outputs[0].numel() * a.shape[-1])


def _added_matrices(call: Call) -> int:
    """Prices `bias + a @ b`, and the sum of such products over a batch (`addbmm`)."""
    a, b = call.tensors[1:3]
    return int(a.numel() * (b.shape[-1] if b.ndim > 1 else 1))


def _grouped_matrices(call: Call) -> int:
    """Prices a grouped product, in which each row of `a` (or column of `b`) meets only the matrix of its group."""
    a, b = call.tensors[:2]
    num_rows = math.prod(a.shape[:-1]) if b.ndim == 3 else a.shape[-2]
    return int(num_rows * a.shape[-1] * b.shape[-1])


def _attention(call: Call) -> int:
    """Prices queries times keys, and the result times values, each (batch, heads, tokens, features); masks change
    nothing.
    """
    query, key, value = call.tensors[:3]
    return int(math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _convolution(call: Call) -> int:
    """Prices a convolution: one filter per result, or one filter per input if it is transposed."""
    names = [argument.name for argument in call.func._schema.arguments]
    is_transposed = "transpose" in call.name or ("transposed" in names and call.arg("transposed"))
    x, weight = call.tensors[:2]
    return int((x if is_transposed else call.outputs[0]).numel() * math.prod(weight.shape[1:]))


def _time_convolution(call: Call) -> int:
    """Prices `conv_tbc`, whose weight is (kernel, in, out)."""
    weight = call.tensors[1]
    return int(call.outputs[0].numel() * weight.shape[0] * weight.shape[1])


def _recurrent(call: Call) -> int:
    """Prices a recurrent layer: each step meets the matrix of its inputs and that of the state once."""
    steps, of_inputs, of_state = call.tensors[:3]
    return math.prod(steps.shape[:-1]) * (of_inputs.numel() + of_state.numel())


def _trilinear(call: Call) -> int:
    """Prices three factors that are expanded to one shape before they are multiplied and summed (`nn.Bilinear`)."""
    shapes = []
    for tensor, expand in zip(call.tensors, (call.arg(f"expand{n}") for n in (1, 2, 3)), strict=True):
        sizes = iter(tensor.shape)
        shapes.append([1 if place in expand else next(sizes) for place in range(tensor.ndim + len(expand))])
    return math.prod(max(sizes) for sizes in zip(*shapes, strict=True))


def _distances(call: Call) -> int:
    """Prices distances, each of which is a sum over features."""
    x: Tensor = call.tensors[0]
    return int(call.outputs[0].numel() * x.shape[-1])


_PRICES: dict[str, Callable[[Call], int]] = {
    r"mm|bmm|mv|linear|mkldnn_linear|_int_mm|_scaled_mm|_weight_int\dpack_mm\w*": _matrices,
    r"v?dot": lambda call: int(call.tensors[0].numel()),
    r"addmm_?|_addmm_activation|addmv_?|addbmm_?|baddbmm_?": _added_matrices,
    r"_(scaled_)?grouped_mm": _grouped_matrices,
    r"_scaled_dot_product_\w+": _attention,
    r"(\w+_)?convolution\w*|slow_conv\w+|_slow_conv2d_forward|_?conv_depthwise\dd|deform_conv2d": _convolution,
    r"conv_tbc": _time_convolution,
    r"mkldnn_rnn_layer": _recurrent,
    r"_trilinear": _trilinear,
    r"_[cp]dist_forward|_euclidean_dist": _distances,
}
"""Functions that compute the multiply-adds of an op, by a regular expression of its whole name."""
