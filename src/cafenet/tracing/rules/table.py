"""The table of op rules: a new op is one entry here, one rule function beside it, and one small test.

Keys are aten ops without an overload (`aten.cat`) or with one (`aten.cat.default`, which takes precedence). Ops that
PyTorch itself tags as pointwise need no entry. An op without an entry freezes all channels that flow into it; nothing
is guessed.
"""

from collections.abc import Mapping
from typing import Any

import torch

from cafenet.errors import TraceError
from cafenet.tracing.calls import Call
from cafenet.tracing.cuts import CutKey
from cafenet.tracing.places import follow_places
from cafenet.tracing.pricing import priced
from cafenet.tracing.recording import Rule, Run, has_labels
from cafenet.tracing.rules import elementwise, indexing, joining, norms, products, reductions, views

aten = torch.ops.aten


def _ops(rule: Rule, names: str) -> dict[Any, Rule]:
    """Maps several aten ops to one rule, and leaves out ops that this version of PyTorch does not have."""
    return {getattr(aten, name): rule for name in names.split() if hasattr(aten, name)}


DEFAULT_RULES: dict[Any, Rule] = {
    # products
    aten.convolution: products.convolution,
    aten.linear: products.linear,
    aten.mm: products.mm,
    aten.addmm: products.addmm,
    aten.bmm: products.bmm,
    aten.baddbmm: products.baddbmm,
    aten.mv: products.mv,
    **_ops(products.dot, "dot vdot"),
    **_ops(products.grouped_mm, "_grouped_mm"),
    **_ops(
        products.batched,
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
    ),
    # normalisations
    **_ops(
        norms.batch_norm,
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
        "_batch_norm_no_update cudnn_batch_norm miopen_batch_norm",
    ),
    **_ops(norms.layer_norm, "native_layer_norm _fused_rms_norm"),
    aten.native_group_norm: norms.group_norm,
    aten._weight_norm_interface: norms.weight_norm,
    # elementwise without the tag, and what looks like its input
    **_ops(
        elementwise.elementwise,
        "hardswish hardswish_ hardsigmoid_ hardtanh hardtanh_ _prelu_kernel copy_ native_dropout rrelu_with_noise "
        "softplus log_sigmoid_forward",
    ),
    **_ops(
        elementwise.carry,
        "zeros_like ones_like full_like empty_like rand_like randn_like bernoulli bernoulli_ uniform_ normal_ zero_ "
        "fill_ detach detach_ alias lift_fresh contiguous _to_copy _conj",
    ),
    aten.glu: elementwise.glu,
    # shapes
    **_ops(views.restride, "as_strided as_strided_"),
    **_ops(views.fresh, "zeros ones empty full rand randn new_zeros new_ones new_empty new_full"),
    aten.view.default: views.reshape,
    **_ops(views.reshape, "_unsafe_view reshape _reshape_alias"),
    aten.permute: views.permute,
    **_ops(views.transpose, "transpose t"),
    aten.unsqueeze: views.unsqueeze,
    aten.squeeze: views.squeeze,
    aten.expand: views.expand,
    aten.repeat: joining.repeat,
    aten.cat: joining.cat,
    aten.stack: joining.stack,
    **_ops(joining.split, "split split_with_sizes unsafe_split"),
    aten.slice: joining.slice_dim,
    **_ops(indexing.drop_dim, "select unbind"),
    aten.flip: joining.flip,
    aten.roll: joining.roll,
    aten.constant_pad_nd: joining.pad,
    aten.index.Tensor: indexing.index,
    aten.index_select: indexing.index_select,
    aten.embedding: indexing.embedding,
    **_ops(indexing.index_add, "index_add index_add_"),
    **_ops(indexing.index_put, "index_put index_put_"),
    aten.gather: indexing.gather,
    aten.unfold: joining.unfold,
    aten.view_as_real: views.view_as_real,
    aten.view_as_complex: views.view_as_complex,
    **_ops(joining.channel_shuffle, "native_channel_shuffle channel_shuffle"),
    aten.pixel_shuffle: joining.pixel_shuffle,
    aten.pixel_unshuffle: joining.pixel_unshuffle,
    # reductions and space
    **_ops(
        reductions.reduction,
        "sum mean amax amin prod var std var_mean std_mean linalg_vector_norm norm logsumexp",
    ),
    **dict.fromkeys([aten.max.dim, aten.min.dim, aten.argmax, aten.argmin], reductions.picking_reduction),
    **dict.fromkeys([aten.max.default, aten.min.default], reductions.reduction),
    **_ops(reductions.along, "_softmax _log_softmax _safe_softmax softmax log_softmax cumsum"),
    **_ops(
        reductions.over_space(1),
        "max_pool1d avg_pool1d adaptive_max_pool1d upsample_nearest1d upsample_linear1d _upsample_nearest_exact1d "
        "reflection_pad1d replication_pad1d",
    ),
    **_ops(
        reductions.over_space(2),
        "_adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d max_pool2d_with_indices mkldnn_max_pool2d "
        "upsample_nearest2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "_upsample_nearest_exact2d reflection_pad2d replication_pad2d",
    ),
    **_ops(
        reductions.over_space(3),
        "_adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d max_pool3d_with_indices upsample_nearest3d "
        "upsample_trilinear3d _upsample_nearest_exact3d reflection_pad3d replication_pad3d",
    ),
    aten.im2col: reductions.im2col,
    aten.col2im: reductions.col2im,
    **_ops(reductions.grid_sampler, "grid_sampler_2d grid_sampler_3d"),
    **_ops(reductions.fourier, "_fft_r2c _fft_c2c _fft_c2r"),
    **_ops(reductions.ranked, "topk"),
}


def unknown(run: Run, call: Call) -> None:
    """The rule of ops without a rule: all channels that flow in are kept.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    for tensor in call.tensors:
        for label in run.labels(tensor):
            run.freeze(
                label,
                f"flows into {call.func}, which has no rule; give one with trace(..., rules={{torch.ops."
                f"{call.func.overloadpacket}: rule}})",
                call,
            )


class RuleTable:
    """Finds the rule of an op: first the user's rules, then the default rules, then PyTorch's pointwise tag.

    It also holds options that concern no single op: `note_sizes`, `output_paths`, `chosen_parts` and
    `follows_sizes`.

    Args:
        extra: The user's rules, by op. They take precedence over the default rules.
        note_sizes: Whether sizes that the model's code takes from attributes follow channels.
        output_paths: Parts of the model's output that keep their sizes (see `cafenet.modules.outputs`). An empty tuple
            means all parts.
        chosen_parts: The part that varies of dimensions that a view cuts (see `cafenet.tracing.cuts`).
        follows_sizes: Whether the features of heads are followed instead of heads.

    Raises:
        TraceError: If `extra` does not map ops to functions.
    """

    def __init__(
        self,
        extra: Mapping[Any, Rule] | None = None,
        *,
        note_sizes: bool = True,
        output_paths: tuple[str, ...] = (),
        chosen_parts: Mapping[CutKey, int] | None = None,
        follows_sizes: bool = False,
    ) -> None:
        self.follows_sizes = follows_sizes
        self.note_sizes, self.output_paths = note_sizes, output_paths
        self.chosen_parts: Mapping[CutKey, int] = chosen_parts or {}
        extra = {} if extra is None else extra
        if not isinstance(extra, Mapping):
            raise TraceError(f"rules must be a dict from ops to functions rule(run, call), but got {extra!r}")
        for key, rule in extra.items():
            if not isinstance(key, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or not callable(rule):
                raise TraceError(
                    "rules must map ops such as torch.ops.aten.cat or torch.ops.aten.cat.default to functions "
                    f"rule(run, call), but got {key!r}: {rule!r}"
                )
        self._extra = extra
        self._rules: dict[Any, Rule] = {**DEFAULT_RULES, **extra}
        self._found: dict[Any, Rule] = {}

    def for_sizes(self, parts: Mapping[CutKey, int]) -> "RuleTable":
        """Copies the table for a trace that follows the features of heads instead of heads.

        Args:
            parts: The part of each cut that varies.

        Returns:
            The copy.
        """
        return RuleTable(
            self._extra,
            note_sizes=self.note_sizes,
            output_paths=self.output_paths,
            chosen_parts=parts,
            follows_sizes=True,
        )

    def __call__(self, func: torch._ops.OpOverload) -> Rule:
        if func not in self._found:
            self._found[func] = _with_attention(self._find(func))
        return self._found[func]

    def _find(self, func: torch._ops.OpOverload) -> Rule:
        for key in (func, func.overloadpacket):
            if key in self._rules:
                return priced(func, _unless_unlabelled(self._rules[key]), freezes=False)
        if torch.Tag.pointwise in func.tags:
            return _unless_unlabelled(elementwise.elementwise)
        return priced(func, unknown, freezes=True)


def _with_attention(rule: Rule) -> Rule:
    def followed(run: Run, call: Call) -> None:
        rule(run, call)
        products.pass_attention_on(call)
        if run.follows_sizes:
            follow_places(run, call)

    return followed


_ALWAYS = {
    # priced:
    *(products.convolution, products.linear, products.mm, products.addmm),
    *(products.bmm, products.baddbmm, products.batched),
    views.fresh,
    views.expand,  # it may enlarge a dimension to the size of another one that varies
}


def _unless_unlabelled(rule: Rule) -> Rule:
    """Skips a rule if no tensor carries channels, which is the case for most ops."""

    def quick(run: Run, call: Call) -> None:
        if any(has_labels(tensor) for tensor in call.tensors):
            rule(run, call)

    return rule if rule in _ALWAYS else quick
