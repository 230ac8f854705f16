"""A count of multiply-adds while a model runs on real values, independent of tracing.

Every op that reads several tensors must either have a formula or be known to multiply nothing. All other ops are
listed, so that an unknown op cannot count as zero. Attention must be run as products (`calling.as_written`).
"""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_FREE = re.compile(
    # norms, losses, and ops that compute parameters
    r"\w*(batch_norm|group_norm|layer_norm|rms_norm|weight_norm|loss|cross_entropy\w*|prelu|rrelu|_cell)\w*"
    r"|_fused_(sgd|ada|moving)\w*|_amp_\w+|_dirichlet_grad|_standard_gamma_grad|glu_jvp|native_dropout"
    # ops that move, pick, sort or compare values
    r"|\w*(scatter|index|gather|masked|embedding|copy|nested|jagged|padded|unpool|max_pool|histogram|same_storage)\w*"
    r"|_?stack|_?cat|_chunk_cat|block_diag|put|take|set|fill|where|isin|searchsorted|bucketize|bincount|view_as\w*|item"
    r"|max|min|sort|topk|kthvalue|median|nanmedian|mode|_cum\w+_helper|equal|allclose|is_s\w+|resize_as\w*|slice_inverse"
    r"|eq|ne|lt|le|gt|ge|gcd|lcm|heaviside|__\w+__|nms|lift_fresh|segment_reduce|_spdiags|lu_unpack|_pack_\w+"
    # element by element without the tag, random numbers, interpolation, factorisations
    r"|rsub|floor_divide|_add_relu|addr|dist|complex|polar|_foreach_(?!mm)\w*|_transform_bias_rescale_qkv"
    r"|normal|binomial|bernoulli|randint_like|linspace|logspace|_philox_\w+|\w*grid_sampler\w*|(ps_)?roi_(align|pool)"
    r"|_?linalg_\w+|\w*solve\w*|geqrf|ormqr|_compute_linear_combination"
    # other kinds of tensors, and questions to PyTorch itself
    r"|\w*(quantize(?!d_(lstm|gru))|quant_pack|sparse_mask|_search)\w*|_?sparse_co\w+_tensor\w*|_sparse_semi_structured_apply\w*"
    r"|_make_\w+|_empty_per_\w+|_new_zeros\w*|_convert_\w+|_validate_\w+|_use_\w+|_test_\w+|_fused_sdp_choice"
    r"|_functional_assert_async|\w*flatten_weight"
)
"""Ops that may read several tensors, but contain no product."""


class ProductCounter(TorchDispatchMode):
    """Adds up the multiply-adds of all ops that run inside the block.

    Example: `x @ w` of 5x8 and 8x3 has 15 results, each a sum of 8 products, which is 120.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.uncounted: dict[str, int] = {}
        """Number of runs of each op that may multiply and has no formula."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if may_multiply(func, sum(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs)))):
            count = _count(func, args, kwargs, out)
            if count is None:
                self.uncounted[str(func)] = self.uncounted.get(str(func), 0) + 1
            else:
                self.total += count
        return out


def may_multiply(func: Any, num_tensors: int) -> bool:
    """Whether an op may contain a product, because it does more than change or move elements.

    Args:
        func: The op.
        num_tensors: Number of tensors among its arguments.

    Returns:
        False if the op is known to multiply nothing.
    """
    name = func._schema.name.partition("::")[2].removesuffix("_")
    return (
        (num_tensors > 1 or func._schema.name in _COUNTS)
        and torch.Tag.pointwise not in func.tags
        and not func.is_view
        and "backward" not in name
        and _FREE.fullmatch(name) is None
    )


def _count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int | None:
    name = func._schema.name.removesuffix("_")
    if name in _COUNTS:
        return int(_COUNTS[name](out if isinstance(out, Tensor) else out[0], *args, **kwargs))
    formula: Any = flop_registry.get(func.overloadpacket)
    return None if formula is None else int(formula(*args, **kwargs, out_val=out)) // 2


def _matrices(out: Tensor, a: Tensor, *_: Any, **__: Any) -> int:
    return out.numel() * a.shape[-1]


def _added_matrices(out: Tensor, _: Tensor, a: Tensor, *__: Any, **___: Any) -> int:
    return out.numel() * a.shape[-1]


def _convolution(out: Tensor, x: Tensor, weight: Tensor, *args: Any, transposed: bool = False, **_: Any) -> int:
    """Counts a filter's size times the number of results, or times the number of inputs if it is transposed."""
    is_transposed = args[4] if len(args) > 4 else transposed
    return (x if is_transposed else out).numel() * weight[0].numel()


def _attention(out: Tensor, query: Tensor, key: Tensor, *_: Any, **__: Any) -> int:
    """Counts one product for each pair of tokens and each feature, of the queries and of the results."""
    return (query.numel() + out.numel()) * key.shape[-2]


def _grouped_matrices(out: Tensor, a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Counts a grouped product; if both factors are matrices, the groups share the summed dimension."""
    num_sharing = out.shape[0] if a.ndim == b.ndim == 2 else 1
    return out.numel() * a.shape[-1] // num_sharing


def _recurrent(out: Tensor, steps: Tensor, of_inputs: Tensor, of_state: Tensor, *_: Any, **__: Any) -> int:
    return steps.shape[0] * steps.shape[1] * (of_inputs.numel() + of_state.numel())


def _trilinear(out: Tensor, *args: Any, **_: Any) -> int:
    """Counts `nn.Bilinear`: three factors are expanded to one shape, multiplied and summed."""
    shapes = []
    for factor, places in zip(args[:3], args[3:6], strict=True):
        for place in sorted(places):
            factor = factor.unsqueeze(place)
        shapes.append(factor.shape)
    return math.prod(torch.broadcast_shapes(*shapes))


_COUNTS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::linear", "aten::mkldnn_linear"), _matrices),
    **dict.fromkeys(("aten::_int_mm", "aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm"), _matrices),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation", "aten::addmv", "aten::baddbmm"), _added_matrices),
    "aten::addbmm": lambda out, _, a, b, **__: a.numel() * b.shape[-1],
    **dict.fromkeys(("aten::dot", "aten::vdot"), lambda out, a, b: a.numel()),
    "aten::_grouped_mm": _grouped_matrices,
    "aten::convolution": _convolution,
    "aten::conv_tbc": lambda out, x, weight, *_, **__: out.numel() * weight[..., 0].numel(),
    "torchvision::deform_conv2d": lambda out, x, weight, *_, **__: out.numel() * weight[0].numel(),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::mkldnn_rnn_layer": _recurrent,
    "aten::_trilinear": _trilinear,
    **dict.fromkeys(("aten::_cdist_forward", "aten::_euclidean_dist", "aten::_pdist_forward"), _matrices),
}
"""Functions that compute the multiply-adds of an op from its (first) result and its arguments."""
