"""One run of the model, watched op by op: a dispatch mode that lets a rule follow the channels through each op."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from cafenet.modules.randomness import seed_torch
from cafenet.tracing.atoms import AtomArray, Atoms, DimLabel, Labels
from cafenet.tracing.attribute_sizes import SizeNotes, Source
from cafenet.tracing.meta_kernels import run_op
from cafenet.tracing.values import Values, has_value

_LABELS = "_cafenet_labels"

BROADCAST: AtomArray = np.empty(0, dtype=np.int64)
"""Label of a dimension that `expand` blew up from size 1: it fits whatever it meets in an elementwise op."""


@dataclass(frozen=True, eq=False)
class Call:
    """One op as the run saw it: what went in, what came out, and the module it happened in."""

    func: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: list[Tensor]
    """All tensors among the arguments, those in lists too."""
    out: Any
    outputs: list[Tensor]
    """All tensors among the results."""
    path: str
    module: nn.Module | None

    def arg(self, name: str) -> Any:
        """The op's argument of that name in its schema, however it was passed."""
        position, default = _arguments(self.func)[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def name(self) -> str:
        """The op's short name, as a reason would mention it: `add`, `convolution`."""
        return str(self.func.overloadpacket).removeprefix("aten.")


@functools.cache
def _arguments(func: torch._ops.OpOverload) -> dict[str, tuple[int | None, Any]]:
    """Position (None if keyword-only) and default of every argument in the op's schema."""
    return {
        argument.name: (None if argument.kwarg_only else position, argument.default_value)
        for position, argument in enumerate(func._schema.arguments)
    }


Rule: TypeAlias = "Callable[[Run, Call], None]"
"""A rule reads the labels of a call's inputs, ties or freezes, and labels its outputs."""


@dataclass(frozen=True, eq=False)
class Term:
    """A product of dimension sizes times a constant: the multiply-adds of one op."""

    constant: int
    sizes: tuple[tuple[int, DimLabel], ...]


@dataclass(frozen=True, eq=False)
class Record:
    """What a later run must reproduce at this op: the op itself and, per output dimension, its size and label."""

    func: torch._ops.OpOverload
    path: str
    inputs: tuple[Labels, ...]
    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[Labels, ...]


@dataclass(frozen=True, eq=False)
class AttributeLabel:
    """A module attribute that counts atoms, where no parameter tells it (a layer norm without weights)."""

    path: str
    attribute: str
    label: AtomArray
    per_element: bool = False
    source: Source | None = None
    """Set where the model's code was seen to take a size from the attribute, which may be a list."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        return (self.path, self.attribute, self.source.index if self.source else None)


@dataclass
class Run:
    """The state that rules read and write."""

    atoms: Atoms
    is_priced: bool = True
    """Whether every product must have a price: FLOPs are those of eval mode."""
    terms: list[Term] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    attributes: list[AttributeLabel] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """ids of all tensors that went into an op; other tensors may get that of a freed one."""
    numbers: list[tuple[Tensor, AtomArray, str, str]] = field(default_factory=list)
    """Tensors that hold positions of channels: who reads one tells these channels apart, for a reason, at a path."""
    output_paths: tuple[str, ...] = ()
    """The parts of the model's output that keep their sizes; none stands for all."""
    output_shapes: list[tuple[int, ...]] = field(default_factory=list)
    draws: bool = False
    """Whether random numbers were drawn that the forward can read, and so take another way with."""
    notes: SizeNotes = field(default_factory=SizeNotes)
    followed: dict[Source, AtomArray] = field(default_factory=dict)
    """The channels that attributes count, from which the model's code took sizes."""

    def labels(self, tensor: Tensor) -> Labels:
        """The label of each dimension of a tensor."""
        return tuple(None if label is BROADCAST else label for label in raw_labels(tensor))

    def label(self, tensor: Tensor, labels: Sequence[DimLabel]) -> None:
        """Say what the dimensions of a result carry."""
        if any(label is not None for label in labels):
            setattr(tensor, _LABELS, tuple(labels))
        elif hasattr(tensor, _LABELS):
            delattr(tensor, _LABELS)

    def tie(self, left: DimLabel, right: DimLabel, call: Call) -> None:
        """Keep or drop the i-th channels of both labels together."""
        self.atoms.tie(left, right, f"meets a dimension of fixed size in {call.name}", call.path)

    def freeze(self, label: DimLabel, reason: str, call: Call) -> None:
        """Keep all channels of a label, with the reason that the user will read."""
        self.atoms.freeze(label, reason, call.path)

    def tell_apart(self, numbers: Tensor, label: AtomArray, call: Call) -> None:
        """Keep all channels of a label if anyone reads `numbers`, a result that holds positions of them."""
        self.seen.discard(id(numbers))  # the id may be that of a freed tensor; from here on the list keeps it
        self.numbers.append((numbers, label, f"is told apart by position in {call.name}", call.path))

    def follow(self, size: Any, label: DimLabel, call: Call) -> bool:
        """Let the attribute that a size was read from count the channels of a label; False if it was read from none.

        An attribute is one number, however often it is used: what it counts in two places goes together.
        """
        source = self.notes.source(size)
        if source is None:
            return False
        if label is not None:
            if source not in self.followed:
                self.followed[source] = label
                self.atoms.part(label)
                self.attributes.append(AttributeLabel(source.path, source.attribute, label, source=source))
            else:
                self.tie(self.followed[source], label, call)
        return True

    def settle_attributes(self) -> None:
        """Keep the channels that an attribute counts if the model also computes values with it."""
        for attribute in self.attributes:
            if attribute.source in self.notes.computed_with:
                reason = f"is counted by {attribute.source}, with which the code also computes values"
                self.atoms.freeze(attribute.label, reason, attribute.path)

    def cost(self, constant: int, *sizes: tuple[int, DimLabel]) -> None:
        """Charge constant x the product of the sizes, in multiply-adds."""
        self.terms.append(Term(constant, sizes))


def raw_labels(tensor: Tensor) -> Labels:
    """The labels as stored, with BROADCAST still visible; in-place reshapes (`squeeze_`) void them."""
    labels: Labels | None = getattr(tensor, _LABELS, None)
    return labels if labels is not None and len(labels) == tensor.ndim else (None,) * tensor.ndim


def has_labels(tensor: Tensor) -> bool:
    """Whether any dimension of the tensor carries channels."""
    return hasattr(tensor, _LABELS)


def tensors_in(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


class ModulePaths:
    """Knows, while installed, which module is running (its dotted name; the model itself is '')."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._stack: list[nn.Module] = []

    @property
    def module(self) -> nn.Module | None:
        return self._stack[-1] if self._stack else None

    @property
    def path(self) -> str:
        return self._names[self._stack[-1]] if self._stack else ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the stack of running modules up to date inside the block, also through exceptions."""

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
    """A dispatch mode that torch.compile need not be kept away from, as nothing is compiled (see `as_written`).

    To keep it away, PyTorch would import torch._dynamo, which takes a second.
    """

    def __init__(self, values: Values | None = None, seed: int = 0) -> None:
        """values: does the ops, if meta tensors know their values; seed: decides what random ops draw."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._values, self._seed = values, seed
        self._num_draws = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """The op's result. The n-th random op draws the same whatever was drawn before it, and at whatever widths."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._num_draws += 1
            seed_torch(1_000_003 * self._seed + self._num_draws)
        if self._values is None:
            return run_op(func, args, kwargs, tensors)
        return self._values.run(func, args, kwargs, tensors)


class WatchMode(EagerMode):
    """Runs every op, then lets its rule follow the channels; real tensors that meet meta ones become meta too."""

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
        self._run.records.append(Record(func, path, before, shapes, tuple(raw_labels(tensor) for tensor in outputs)))
        return out


def on_one_device(
    args: tuple[Any, ...], kwargs: dict[str, Any], values: Values | None = None
) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
    """The arguments and the tensors in them; constants made on the CPU become meta where they meet meta tensors."""
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
    """A meta tensor in place of a real one, with the same channels and, where values are known, its values."""
    meta: Tensor = torch.empty_like(tensor, device="meta") if values is None else values.beside(tensor)
    if has_labels(tensor):
        setattr(meta, _LABELS, getattr(tensor, _LABELS))
    return meta
