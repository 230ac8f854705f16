"""Meta tensors that know their values, for a forward that reads some: `if mask.any()`, `x[keep]`, `t.item()`.

A forward like that cannot run on meta tensors alone. It can run on real tensors, but there PyTorch runs other ops than
on meta tensors (fused attention, fused recurrent layers), which hide what they multiply. The tensors that the model
sees therefore stay meta tensors, and each carries the real tensor that it represents. Ops arrive as they do on meta
tensors. They are executed on the values, and the results are meta tensors of the same shape, which carry the new
values.

A tensor may have no value: parameters have none as long as the forward reads only what it computes from its inputs. An
op with such an argument is executed on meta tensors alone, and its result has no value either. Reading such a result
raises an error, as it does on any meta tensor.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from cafenet.modules.tensors import to_meta
from cafenet.tracing.meta_kernels import run_op

_VALUE = "_cafenet_value"
_META = torch.device("meta")


class Values:
    """Runs ops on meta tensors and on the values that they carry.

    Args:
        home: Device of the values.
        kept: Tensors of the user, which are restored by `give_back` if the forward writes to them.
        on_meta: Whether the model sees meta tensors. Otherwise it sees the values, for code that bypasses PyTorch.
    """

    def __init__(self, home: torch.device, kept: Iterable[Tensor] = (), on_meta: bool = True) -> None:
        """Notes the memory of the tensors that are to be restored."""
        self._home, self._users, self._on_meta = home, tuple(kept), on_meta
        self._kept: dict[int, list[Tensor]] = {}
        for tensor in self._users:
            self._kept.setdefault(_storage(tensor), []).append(tensor)
        self._written: list[tuple[Tensor, Tensor]] = []
        self._stale: dict[int, Tensor] = {}
        """Values that are out of date, because a write to their memory had no value, by storage."""

    def again(self) -> "Values":
        """Creates an instance with the same options for another run.

        Returns:
            The new instance, which has seen no op so far.
        """
        return Values(self._home, self._users, self._on_meta)

    def beside(self, tree: Any) -> Any:
        """Replaces real tensors by meta tensors that carry them as values. Meta tensors stay as they are.

        Args:
            tree: A tensor, or nested lists, tuples and dicts with tensors.

        Returns:
            The same structure.
        """
        if not self._on_meta:
            return tree
        return tree_map(
            lambda leaf: self._mirror(leaf) if isinstance(leaf, Tensor) and not leaf.is_meta else leaf, tree
        )

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Executes an op on the values, if all of its arguments have one.

        Args:
            func: The op.
            args: Positional arguments of the op.
            kwargs: Keyword arguments of the op.
            tensors: All tensors among the arguments (see `on_one_device`).

        Returns:
            The result of the op, as meta tensors that carry values.

        Raises:
            NotImplementedError: If the op reads a tensor whose value was lost by a write without a value.
        """
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
            run_op(func, args, kwargs, tensors)  # in-place reshapes such as `squeeze_`
        if "device" in kwargs and kwargs["device"] not in (None, _META):
            return out  # the forward asks for the values themselves: `.cpu()`, `.tolist()`
        return _mapped(out, lambda tensor: known[id(tensor)] if id(tensor) in known else self._mirror(tensor))

    def with_zeros(self, results: Any) -> Any:
        """Gives the value zero to results that have no value.

        Args:
            results: Results of an op.

        Returns:
            The same structure, in which all tensors have values.
        """

        def known(tensor: Tensor) -> Tensor:
            if has_value(tensor):
                return tensor
            return self._mirror(torch.zeros(tensor.shape, dtype=tensor.dtype, device=self._home))

        return _mapped(results, known)

    def give_back(self) -> None:
        """Undoes all writes to the tensors of the user."""
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
        """Replaces meta tensors in arguments by their values, and the meta device by the device of the values."""

        def real(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return values[id(leaf)]
            return self._home if leaf == _META else leaf

        return tree_map(real, tree)

    def _lose(self, value: Tensor | None) -> None:
        if value is not None:
            self._stale[_storage(value)] = value  # keeps the memory alive, so that no other tensor gets its address

    def _save(self, value: Tensor | None) -> None:
        """Copies the user's tensors in this memory before the first write to it."""
        if value is not None:
            for tensor in self._kept.pop(_storage(value), ()) if self._kept else ():
                self._written.append((tensor, tensor.detach().clone()))


def has_value(tensor: Tensor) -> bool:
    """Whether a reader of the tensor finds a value.

    Args:
        tensor: A tensor of the watched run.

    Returns:
        True for real tensors, and for meta tensors that carry a value.
    """
    return not tensor.is_meta or hasattr(tensor, _VALUE)


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an op writes to, according to its schema."""
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
    """Applies a function to every tensor of an op's result."""
    if isinstance(out, Tensor):
        return change(out)
    if isinstance(out, (list, tuple)):
        return type(out)(_mapped(each, change) for each in out)
    return out


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)
