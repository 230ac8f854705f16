"""Meta tensors that know their values, for a forward that reads some: `if mask.any()`, `x[keep]`, `t.item()`.

Such a forward cannot run on meta tensors alone. On real tensors it can, but there PyTorch runs other ops than on meta
ones (fused attention, fused recurrent layers), which hide what they multiply. So the tensors that the model sees stay
meta, and each carries the real tensor that it stands for. Ops arrive as on meta; they are done on the values, and the
results go back as meta tensors of the same shape, which carry the new values.

A tensor may have no value: parameters have none as long as the forward reads only what it computes from its inputs. An
op with such an argument is done on meta alone, and its result has no value either; reading that raises, as on meta.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from cafenet.modules.calling import to_meta
from cafenet.tracing.meta_kernels import run_op

_VALUE = "_cafenet_value"
_META = torch.device("meta")


class Values:
    """Runs ops on meta tensors and on the values beside them."""

    def __init__(self, home: torch.device, kept: Iterable[Tensor] = (), on_meta: bool = True) -> None:
        """home: where values lie; kept: tensors of the user's, which get back what they held if the forward writes.

        on_meta: whether the model sees meta tensors; otherwise it sees the values, for code that goes past PyTorch.
        """
        self._home, self._users, self._on_meta = home, tuple(kept), on_meta
        self._kept: dict[int, list[Tensor]] = {}
        for tensor in self._users:
            self._kept.setdefault(_storage(tensor), []).append(tensor)
        self._written: list[tuple[Tensor, Tensor]] = []
        self._stale: dict[int, Tensor] = {}
        """Values whose memory a write without a value has passed by, by their storage."""

    def again(self) -> "Values":
        """The same for another run."""
        return Values(self._home, self._users, self._on_meta)

    def beside(self, tree: Any) -> Any:
        """Meta tensors in place of real ones, which become their values; meta tensors stay as they are."""
        if not self._on_meta:
            return tree
        return tree_map(
            lambda leaf: self._mirror(leaf) if isinstance(leaf, Tensor) and not leaf.is_meta else leaf, tree
        )

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """What `func(*args, **kwargs)` returns; `tensors` are those among the arguments (see `on_one_device`)."""
        is_factory = not tensors and _META in (kwargs.get("device"), *(a for a in args if isinstance(a, torch.device)))
        if not is_factory and not any(tensor.is_meta for tensor in tensors):
            if self._stale and any(_storage(tensor) in self._stale for tensor in tensors):
                raise NotImplementedError(f"{func} reads a tensor into which the model wrote what has no value here")
            for tensor in _written(func, args, kwargs):
                self._save(tensor)
            return func(*args, **kwargs)
        values = {id(tensor): self._value(tensor) for tensor in tensors}
        written = _written(func, args, kwargs)
        if any(value is None for value in values.values()):
            for tensor in written:
                self._lose(values[id(tensor)])
            return run_op(func, args, kwargs, tensors)
        for tensor in written:
            self._save(values[id(tensor)])
        known = {id(values[id(tensor)]): tensor for tensor in tensors}
        out = func(*self._real(args, values), **self._real(kwargs, values))
        if any(tensor.shape != values[id(tensor)].shape for tensor in written):  # type: ignore[union-attr]
            run_op(func, args, kwargs, tensors)  # `squeeze_` and the like
        if "device" in kwargs and kwargs["device"] not in (None, _META):
            return out  # the forward asks for the values themselves: `.cpu()`, `.tolist()`
        return _mapped(out, lambda tensor: known[id(tensor)] if id(tensor) in known else self._mirror(tensor))

    def with_zeros(self, results: Any) -> Any:
        """Results of an op with zeros as the values of those that have none."""

        def known(tensor: Tensor) -> Tensor:
            if has_value(tensor):
                return tensor
            return self._mirror(torch.zeros(tensor.shape, dtype=tensor.dtype, device=self._home))

        return _mapped(results, known)

    def give_back(self) -> None:
        """Undo what was written into the tensors of the user's."""
        with torch.no_grad():
            for tensor, before in self._written:
                tensor.copy_(before)
                self._kept.setdefault(_storage(tensor), []).append(tensor)
        self._written.clear()

    def _beside(self, leaf: Any) -> Any:
        return self._mirror(leaf) if isinstance(leaf, Tensor) and not leaf.is_meta else leaf

    def _mirror(self, value: Tensor) -> Tensor:
        meta: Tensor = to_meta(value)
        setattr(meta, _VALUE, value)
        return meta

    def _value(self, tensor: Tensor) -> Tensor | None:
        value: Tensor | None = getattr(tensor, _VALUE, None) if tensor.is_meta else tensor
        return None if value is None or _storage(value) in self._stale else value

    def _real(self, tree: Any, values: Mapping[int, Tensor | None]) -> Any:
        """Arguments with values in place of meta tensors, on the device where these lie."""

        def real(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return values[id(leaf)]
            return self._home if leaf == _META else leaf

        return tree_map(real, tree)

    def _lose(self, value: Tensor | None) -> None:
        if value is not None:
            self._stale[_storage(value)] = value  # which keeps the memory, so that no other tensor gets its address

    def _save(self, value: Tensor | None) -> None:
        """Keep a copy of the user's tensors in this memory before the first write to it."""
        if value is not None:
            for tensor in self._kept.pop(_storage(value), ()) if self._kept else ():
                self._written.append((tensor, tensor.detach().clone()))


def has_value(tensor: Tensor) -> bool:
    """Whether someone who reads the tensor finds a value."""
    return not tensor.is_meta or hasattr(tensor, _VALUE)


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an op writes to, by its schema."""
    schema = func._schema
    if not schema.is_mutable:
        return []
    given = {**dict(zip((argument.name for argument in schema.arguments), args, strict=False)), **kwargs}
    targets = [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [
        leaf
        for target in targets
        for leaf in (target if isinstance(target, (list, tuple)) else [target])
        if isinstance(leaf, Tensor)
    ]


def _mapped(out: Any, change: Any) -> Any:
    """An op's result with every tensor changed."""
    if isinstance(out, Tensor):
        return change(out)
    if isinstance(out, (list, tuple)):
        return type(out)(_mapped(each, change) for each in out)
    return out


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)
