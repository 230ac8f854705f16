"""Positions of weights from which every number of queries and keys is made, while the sizes of heads are followed.

Smallest example: `qkv` makes 24 features, which are cut into queries, keys and values of 2 heads with 4 features. The
label of the queries' features names the first head's only, since the i-th features of all heads are tied, to those of
keys and values, too. But the scale of attention is made up for by the rows 0 to 7 of `qkv.weight` and of its bias: so
each tensor here carries tables of its own shape, with the atom of the weight and of the bias behind every number. They
take the same way through views as the tensor does.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cafenet.tracing.atoms import AtomArray, DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import Run

_PLACES = "_cafenet_places"

aten = torch.ops.aten
_MAKERS = {aten.linear: -1, aten.addmm: -1, aten.mm: -1, aten.convolution: 1}
"""Ops that make features, and the dimension in which these lie."""
_BIAS = {aten.linear: 2, aten.addmm: 0, aten.convolution: 2}
"""Argument with the bias of these ops."""
_RESHAPES = {aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias}
_MOVES = {
    *(aten.permute, aten.transpose, aten.t, aten.unsqueeze, aten.squeeze, aten.expand, aten.select),
    *(aten.slice, aten.unbind, aten.split, aten.split_with_sizes, aten.roll),
}
_JOINS = {aten.cat, aten.stack}
_KEEP = {aten.clone, aten._to_copy, aten.alias, aten.detach, aten.contiguous, aten.neg, aten.mul, aten.div, aten.mul_}


def follow_places(run: Run, call: Call) -> None:
    """Passes the tables of a call's inputs on to its results. An op that is not known here has none.

    Args:
        run: The trace so far.
        call: The call of the op.
    """
    op = call.func.overloadpacket
    if op in _MAKERS:
        _begin(run, call, _MAKERS[op], _BIAS.get(op))
    elif op in _RESHAPES:
        _set(call.out, [table.reshape(call.out.shape) for table in _places(call.args[0])])
    elif op in _MOVES and _places(call.args[0]):
        results = [call.func(table, *call.args[1:], **call.kwargs) for table in _places(call.args[0])]
        for number, out in enumerate(call.outputs):
            _set(out, [each[number] if isinstance(each, (list, tuple)) else each for each in results])
    elif op in _KEEP:
        known = [tensor for tensor in call.tensors if _places(tensor)]
        if len(known) == 1 and known[0].shape == call.out.shape:
            _set(call.out, _places(known[0]))
    elif op in (aten.add, aten.sub, aten.add_):
        _set(call.out, _added(run, call))
    elif op in _JOINS:
        tables = [_places(tensor) for tensor in call.tensors]
        if all(tables):
            most = max(map(len, tables))
            full = [each + each[-1:] * (most - len(each)) for each in tables]
            _set(call.out, [call.func(list(each), call.arg("dim")) for each in zip(*full, strict=True)])


def atoms_of(*factors: Tensor) -> AtomArray | None:
    """Finds the weights of the first factor whose weights are known.

    Args:
        *factors: The factors of a product.

    Returns:
        The atoms in rising order, or None.
    """
    for factor in factors:
        tables = _places(factor)
        if tables:
            return np.unique(np.concatenate([table.unique().numpy() for table in tables]))
    return None


def _begin(run: Run, call: Call, dim: int, bias: int | None) -> None:
    """Gives the results of a layer their first tables, of the weight and of the bias."""
    labels = [run.labels(call.out)[dim]]
    added = call.args[bias] if bias is not None and bias < len(call.args) else None
    if isinstance(added, Tensor):
        labels.append(run.labels(added)[-1])
    tables = [_table(label, dim, call.out) for label in labels]
    if all(table is not None for table in tables):
        _set(call.out, tables)


def _table(label: DimLabel, dim: int, like: Tensor) -> Any:
    if label is None or label.size != like.shape[dim] or (label < 0).any():
        return None
    shape = [1] * like.ndim
    shape[dim] = label.size
    return torch.from_numpy(np.ascontiguousarray(label)).view(shape).expand(like.shape)


def _added(run: Run, call: Call) -> list[Any]:
    """Returns the tables of both sides of a sum; a bias is a side of its own. Any other constant is no multiple."""
    tables: list[Any] = []
    for tensor in call.tensors:
        labels = run.labels(tensor)
        own = _places(tensor)
        if not own and tensor.ndim and labels[-1] is not None and call.out.shape[-1] == tensor.shape[-1]:
            own = [_table(labels[-1], -1, call.out)]
        if not own or any(table is None or table.shape != call.out.shape for table in own):
            return []
        tables += own
    return tables


def _places(tensor: Any) -> list[Any]:
    found: list[Any] = getattr(tensor, _PLACES, [])
    return found


def _set(tensor: Tensor, tables: list[Any]) -> None:
    if tables:
        setattr(tensor, _PLACES, tables)
    elif hasattr(tensor, _PLACES):
        delattr(tensor, _PLACES)
