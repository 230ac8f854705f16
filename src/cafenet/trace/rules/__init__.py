"""The table of op rules: a new op is one entry here, one rule function beside it, and one small test.

Keys are aten ops, without the overload (`aten.cat`) or with it (`aten.cat.default`, which goes first). Ops that
PyTorch itself tags as pointwise need no entry. What has no entry freezes whatever flows into it: never a guess.
"""

from collections.abc import Mapping
from typing import Any

import torch

from cafenet.errors import TraceError
from cafenet.trace.rules import elementwise, norms, products, reductions, shapes
from cafenet.trace.run import Call, Rule, Run, has_labels

aten = torch.ops.aten

DEFAULT_RULES: dict[Any, Rule] = {
    # products
    aten.convolution: products.convolution,
    aten.linear: products.linear,
    aten.mm: products.mm,
    aten.addmm: products.addmm,
    **dict.fromkeys([aten.bmm, aten.baddbmm, *products.ATTENTION], products.batched),
    # normalisations
    **dict.fromkeys(norms.BATCH_NORMS, norms.batch_norm),
    aten.native_layer_norm: norms.layer_norm,
    aten._fused_rms_norm: norms.layer_norm,
    aten.native_group_norm: norms.group_norm,
    # elementwise without the tag, and what looks like its input
    **dict.fromkeys(
        [aten.hardswish, aten.hardswish_, aten.hardsigmoid_, aten.hardtanh, aten.hardtanh_, aten._prelu_kernel]
        + [aten.copy_, aten.native_dropout, aten.rrelu_with_noise, aten.softplus, aten.log_sigmoid_forward],
        elementwise.elementwise,
    ),
    **dict.fromkeys(
        [aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like, aten.rand_like, aten.randn_like]
        + [aten.bernoulli, aten.bernoulli_, aten.uniform_, aten.normal_, aten.zero_, aten.fill_]
        + [aten.detach, aten.detach_, aten.alias, aten.lift_fresh, aten.contiguous, aten._to_copy, aten.requires_grad_],
        elementwise.carry,
    ),
    aten.glu: elementwise.glu,
    # shapes
    **dict.fromkeys([aten.view.default, aten._unsafe_view, aten.reshape, aten._reshape_alias], shapes.reshape),
    aten.permute: shapes.permute,
    **dict.fromkeys([aten.transpose, aten.t], shapes.transpose),
    aten.unsqueeze: shapes.unsqueeze,
    aten.squeeze: shapes.squeeze,
    aten.expand: shapes.expand,
    aten.repeat: shapes.repeat,
    aten.cat: shapes.cat,
    aten.stack: shapes.stack,
    **dict.fromkeys([aten.split, aten.split_with_sizes, aten.unsafe_split], shapes.split),
    aten.slice: shapes.slice_dim,
    **dict.fromkeys([aten.select, aten.unbind], shapes.drop_dim),
    aten.flip: shapes.flip,
    aten.roll: shapes.roll,
    aten.constant_pad_nd: shapes.pad,
    aten.index.Tensor: shapes.index,
    aten.index_select: shapes.index_select,
    aten.embedding: shapes.embedding,
    **dict.fromkeys([aten.native_channel_shuffle, aten.channel_shuffle], shapes.channel_shuffle),
    aten.pixel_shuffle: shapes.pixel_shuffle,
    aten.pixel_unshuffle: shapes.pixel_unshuffle,
    # reductions and space
    **dict.fromkeys(
        [aten.sum, aten.mean, aten.amax, aten.amin, aten.prod, aten.var, aten.std, aten.var_mean, aten.std_mean]
        + [aten.linalg_vector_norm, aten.norm, aten.logsumexp],
        reductions.reduction,
    ),
    **dict.fromkeys([aten.max.dim, aten.min.dim, aten.argmax, aten.argmin], reductions.picking_reduction),
    **dict.fromkeys([aten.max.default, aten.min.default], reductions.reduction),
    **dict.fromkeys(
        [aten._softmax, aten._log_softmax, aten._safe_softmax, aten.cumsum, aten.softmax, aten.log_softmax],
        reductions.along,
    ),
    **dict.fromkeys(
        [aten._adaptive_avg_pool2d, aten.adaptive_max_pool2d, aten.avg_pool2d, aten.max_pool2d_with_indices]
        + [aten.mkldnn_max_pool2d, aten.upsample_nearest2d, aten.upsample_bilinear2d, aten.upsample_bicubic2d]
        + [aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa, aten._upsample_nearest_exact2d]
        + [aten.reflection_pad2d, aten.replication_pad2d],
        reductions.over_space(2),
    ),
    **dict.fromkeys(
        [aten.max_pool1d, aten.avg_pool1d, aten.adaptive_max_pool1d, aten.upsample_nearest1d, aten.upsample_linear1d]
        + [aten._upsample_nearest_exact1d, aten.reflection_pad1d, aten.replication_pad1d],
        reductions.over_space(1),
    ),
    **dict.fromkeys(
        [aten._adaptive_avg_pool3d, aten.adaptive_max_pool3d, aten.avg_pool3d, aten.max_pool3d_with_indices]
        + [aten.upsample_nearest3d, aten.upsample_trilinear3d, aten._upsample_nearest_exact3d]
        + [aten.reflection_pad3d, aten.replication_pad3d],
        reductions.over_space(3),
    ),
    aten.im2col: reductions.im2col,
}


def unknown(run: Run, call: Call) -> None:
    """No rule: whatever flows in is kept whole."""
    for tensor in call.tensors:
        for label in run.labels(tensor):
            run.freeze(label, f"flows into {call.func}, which has no rule", call)


class RuleTable:
    """Finds the rule of an op: the user's own first, then ours, then PyTorch's pointwise tag."""

    def __init__(self, extra: Mapping[Any, Rule] | None = None) -> None:
        for key, rule in (extra or {}).items():
            if not isinstance(key, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or not callable(rule):
                raise TraceError(
                    "rules must map ops such as torch.ops.aten.cat or torch.ops.aten.cat.default to functions "
                    f"rule(run, call), but got {key!r}: {rule!r}"
                )
        self._rules: dict[Any, Rule] = {**DEFAULT_RULES, **(extra or {})}
        self._found: dict[Any, Rule] = {}

    def __call__(self, func: torch._ops.OpOverload) -> Rule:
        if func not in self._found:
            self._found[func] = self._find(func)
        return self._found[func]

    def _find(self, func: torch._ops.OpOverload) -> Rule:
        for key in (func, func.overloadpacket):
            if key in self._rules:
                return _unless_unlabelled(self._rules[key])
        if torch.Tag.pointwise in func.tags:
            return _unless_unlabelled(elementwise.elementwise)
        return unknown


_PRICED = {products.convolution, products.linear, products.mm, products.addmm, products.batched}


def _unless_unlabelled(rule: Rule) -> Rule:
    """Most ops on most tensors carry nothing: skip their rules."""

    def quick(run: Run, call: Call) -> None:
        if any(has_labels(tensor) for tensor in call.tensors):
            rule(run, call)

    return rule if rule in _PRICED else quick
