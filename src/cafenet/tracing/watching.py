"""A dispatch mode that runs the model op by op and lets a rule follow the channels through each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from cafenet.modules.randomness import seed_torch
from cafenet.tracing.calls import READ, Call, Record
from cafenet.tracing.meta_kernels import run_op
from cafenet.tracing.recording import LABELS, Rule, Run, has_labels, raw_labels, tensors_in
from cafenet.tracing.values import Values, has_value


class ModulePaths:
    """Tells which module is running, by its dotted name. The model itself is an empty text.

    Args:
        model: The model that is watched.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._stack: list[nn.Module] = []

    @property
    def module(self) -> nn.Module | None:
        """The running module, or None outside of all modules."""
        return self._stack[-1] if self._stack else None

    @property
    def path(self) -> str:
        """Path of the running module, or an empty text outside of all modules."""
        return self._names[self._stack[-1]] if self._stack else ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keeps the stack of running modules up to date inside the block, even if a module raises."""

        def enter(module: nn.Module, args: Any) -> None:
            if module in self._names:
                self._stack.append(module)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if self._stack and self._stack[-1] is module:
                self._stack.pop()

        hooks = [
            module_hooks.register_module_forward_pre_hook(enter),
            module_hooks.register_module_forward_hook(leave),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class EagerMode(TorchDispatchMode):
    """A dispatch mode from which torch.compile need not be kept away, because nothing is compiled (see
    `as_written`).

    PyTorch would import torch._dynamo to keep it away, which takes a second.

    Args:
        values: Values of the meta tensors, which then execute the ops. None means that meta tensors have no values.
        seed: Seed of all random ops.
    """

    def __init__(self, values: Values | None = None, seed: int = 0) -> None:
        """Prepares the counter of random ops."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._values, self._seed = values, seed
        self._num_draws = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Executes an op. The n-th random op draws the same numbers at all widths, whatever was drawn before it.

        Args:
            func: The op.
            args: Positional arguments of the op.
            kwargs: Keyword arguments of the op.
            tensors: All tensors among the arguments.

        Returns:
            The result of the op.
        """
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._num_draws += 1
            seed_torch(1_000_003 * self._seed + self._num_draws)
        if self._values is None:
            return run_op(func, args, kwargs, tensors)
        return self._values.run(func, args, kwargs, tensors)


class WatchMode(EagerMode):
    """Runs every op, then lets its rule follow the channels. Real tensors that meet meta tensors become meta tensors
    too.

    Args:
        run: The record that the rules write to.
        find_rule: Function that returns the rule of an op.
        paths: The running module, while it is installed.
        values: Values of the meta tensors, or None if they have none.
        seed: Seed of all random ops.
    """

    def __init__(
        self,
        run: Run,
        find_rule: Callable[[torch._ops.OpOverload], Rule],
        paths: ModulePaths,
        values: Values | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(values, seed)
        self._run, self._find_rule, self._paths = run, find_rule, paths

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs, inputs = on_one_device(args, kwargs or {}, self._values)
        self._run.seen.update(map(id, inputs))
        before = tuple(raw_labels(tensor) for tensor in inputs if has_labels(tensor))
        out = self.execute(func, args, kwargs, inputs)
        outputs = list(tensors_in((out,)))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._run.draws |= any(has_value(tensor) for tensor in outputs)
        path = self._paths.path
        call = Call(func, args, kwargs, inputs, out, outputs, path, self._paths.module)
        self._find_rule(func)(self._run, call)
        shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        labels = tuple(raw_labels(tensor) for tensor in outputs)
        factors = factors_in(args, kwargs) if self._run.follows_sizes else ()
        self._run.records.append(Record(func, path, before, shapes, labels, out if func is READ else None, factors))
        return out


def factors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, ...]:
    """Collects the numbers with fractions that an op is given, and the value of a constant with one element.

    Args:
        args: Positional arguments of the op.
        kwargs: Keyword arguments of the op.

    Returns:
        The numbers in order.
    """
    found = [value for value in (*args, *kwargs.values()) if type(value) is float]
    constants = [value for value in args if isinstance(value, Tensor) and not value.is_meta and value.numel() == 1]
    return (*found, *(float(value) for value in constants if not has_value(value) and value.is_floating_point()))


def on_one_device(
    args: tuple[Any, ...], kwargs: dict[str, Any], values: Values | None = None
) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
    """Converts CPU constants to meta tensors if they meet meta tensors in one op.

    Args:
        args: Positional arguments of the op.
        kwargs: Keyword arguments of the op.
        values: Values of the meta tensors, or None if they have none.

    Returns:
        The converted arguments, and all tensors among them.
    """
    tensors = list(tensors_in((*args, *kwargs.values())))
    num_meta = sum(tensor.is_meta for tensor in tensors)
    if num_meta == 0 or num_meta == len(tensors) or all(t.is_meta or t.ndim == 0 for t in tensors):
        return args, kwargs, tensors

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim:
            return value if value.is_meta else _on_meta(value, values)
        if isinstance(value, (list, tuple)):
            return type(value)(convert(item) for item in value)
        return value

    args, kwargs = tuple(convert(arg) for arg in args), {key: convert(value) for key, value in kwargs.items()}
    return args, kwargs, list(tensors_in((*args, *kwargs.values())))


def _on_meta(tensor: Tensor, values: Values | None) -> Tensor:
    """Converts a real tensor to a meta tensor with the same channels and, if values are known, the same values."""
    meta: Tensor = torch.empty_like(tensor, device="meta") if values is None else values.beside(tensor)
    if has_labels(tensor):
        setattr(meta, LABELS, getattr(tensor, LABELS))
    return meta
