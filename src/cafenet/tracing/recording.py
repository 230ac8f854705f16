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
from cafenet.tracing.cuts import Cut, CutKey
from cafenet.tracing.meta_kernels import run_op
from cafenet.tracing.values import Values, has_value

_LABELS = "_cafenet_labels"

BROADCAST: AtomArray = np.empty(0, dtype=np.int64)
"""Label of a dimension that `expand` enlarged from size 1: it fits any dimension that it meets in an elementwise op."""


@dataclass(frozen=True, eq=False)
class Call:
    """One op as the run saw it: its arguments, its results, and the module in which it ran."""

    func: torch._ops.OpOverload
    """The op, for example `torch.ops.aten.cat.default`."""
    args: tuple[Any, ...]
    """Positional arguments."""
    kwargs: Mapping[str, Any]
    """Keyword arguments."""
    tensors: list[Tensor]
    """All tensors among the arguments, including those in lists."""
    out: Any
    """The result of the op."""
    outputs: list[Tensor]
    """All tensors among the results."""
    path: str
    """Path of the running module. The model itself is an empty text."""
    module: nn.Module | None
    """The running module, or None outside of all modules."""

    def arg(self, name: str) -> Any:
        """Returns an argument by its name in the op's schema, whether it was passed by position, by keyword or not
        at all.

        Args:
            name: Name of the argument in the schema.

        Returns:
            The value that was passed, or the default.

        Raises:
            KeyError: If the schema has no such argument.
        """
        position, default = _arguments(self.func)[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def name(self) -> str:
        """The op's short name for use in a reason, for example `add` or `convolution`."""
        return str(self.func.overloadpacket).removeprefix("aten.")


@functools.cache
def _arguments(func: torch._ops.OpOverload) -> dict[str, tuple[int | None, Any]]:
    """Position (None if keyword-only) and default of every argument in the op's schema."""
    return {
        argument.name: (None if argument.kwarg_only else position, argument.default_value)
        for position, argument in enumerate(func._schema.arguments)
    }


Rule: TypeAlias = "Callable[[Run, Call], None]"
"""A rule reads the labels of a call's inputs, ties or freezes channels, and labels the outputs."""


@dataclass(frozen=True, eq=False)
class Term:
    """The multiply-adds of one op: a constant times a product of dimension sizes."""

    constant: int
    """The constant factor."""
    sizes: tuple[tuple[int, DimLabel], ...]
    """The size and the label of each dimension in the product."""


@dataclass(frozen=True, eq=False)
class Record:
    """The data of an op that a later run must reproduce."""

    func: torch._ops.OpOverload
    """The op."""
    path: str
    """Path of the running module."""
    inputs: tuple[Labels, ...]
    """Labels of the tensors among the arguments that carry channels."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of all results."""
    outputs: tuple[Labels, ...]
    """Labels of all results."""


@dataclass(frozen=True, eq=False)
class AttributeLabel:
    """A module attribute that counts atoms and follows from no parameter (a layer norm without weights)."""

    path: str
    """Path of the module."""
    attribute: str
    """Name of the attribute."""
    label: AtomArray
    """The channels that the attribute counts."""
    per_element: bool = False
    """Whether the attribute is a tuple of one number, as `normalized_shape` is."""
    source: Source | None = None
    """The attribute that the model's code was seen to take a size from, which may be an entry of a list."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Path, attribute name and index in a list (None for a single number), which identify the attribute."""
        return (self.path, self.attribute, self.source.index if self.source else None)


@dataclass
class Run:
    """The state that rules read and write."""

    atoms: Atoms
    """Everything that the rules have recorded about channels."""
    is_priced: bool = True
    """Whether every product must have a price. This holds in eval mode, for which FLOPs are counted."""
    terms: list[Term] = field(default_factory=list)
    """The multiply-adds of all ops so far."""
    records: list[Record] = field(default_factory=list)
    """All ops so far, for the check run."""
    attributes: list[AttributeLabel] = field(default_factory=list)
    """Module attributes that follow channels."""
    seen: set[int] = field(default_factory=set)
    """`id` of every tensor that an op has read. A later tensor may get the id of a freed one."""
    numbers: list[tuple[Tensor, AtomArray, str, str]] = field(default_factory=list)
    """Tensors that hold positions of channels, each with the label, the reason and the path of the freeze. If an op
    reads such a tensor, it tells these channels apart.
    """
    output_paths: tuple[str, ...] = ()
    """Parts of the model's output that keep their sizes. An empty tuple means all parts."""
    output_shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of these parts."""
    draws: bool = False
    """Whether the forward may read random numbers that were drawn, and so take another way the next time."""
    notes: SizeNotes = field(default_factory=SizeNotes)
    """Sizes that the model's code took from attributes."""
    followed: dict[Source, AtomArray] = field(default_factory=dict)
    """Channels that are counted by attributes from which the model's code took sizes."""
    chosen_parts: Mapping[CutKey, int] = field(default_factory=dict)
    """The part that varies of dimensions that a view cuts, if an earlier trace found that the usual one cannot."""
    cuts: list[Cut] = field(default_factory=list)
    """All views so far that cut a labelled dimension in several, with the part that varies."""
    unfit: list[AtomArray] = field(default_factory=list)
    """Labels that stay whole because of their use, so that another part of their cut might vary (heads)."""
    has_attention: bool = False
    """Whether a product of two activations was seen, which is the only reason to look for other parts of cuts."""

    def labels(self, tensor: Tensor) -> Labels:
        """Returns the label of each dimension of a tensor.

        Args:
            tensor: A tensor of the watched run.

        Returns:
            One label per dimension, which is atoms, or None for a dimension of fixed size.
        """
        return tuple(None if label is BROADCAST else label for label in raw_labels(tensor))

    def label(self, tensor: Tensor, labels: Sequence[DimLabel]) -> None:
        """Sets the labels of a result.

        Args:
            tensor: A result of the op.
            labels: One label per dimension.
        """
        if any(label is not None for label in labels):
            setattr(tensor, _LABELS, tuple(labels))
        elif hasattr(tensor, _LABELS):
            delattr(tensor, _LABELS)

    def tie(self, left: DimLabel, right: DimLabel, call: Call) -> None:
        """Keeps or drops the i-th channels of two labels together.

        Args:
            left: One label, or None for a dimension of fixed size, which freezes the other.
            right: The other label, of the same length.
            call: The call of the op.
        """
        self.atoms.tie(left, right, f"meets a dimension of fixed size in {call.name}", call.path)

    def freeze(self, label: DimLabel, reason: str, call: Call) -> None:
        """Keeps all channels of a label.

        Args:
            label: The label. None has no channels.
            reason: Clause that the user will read, for example "is indexed by a tensor".
            call: The call of the op.
        """
        self.atoms.freeze(label, reason, call.path)

    def tell_apart(self, numbers: Tensor, label: AtomArray, call: Call) -> None:
        """Keeps all channels of a label if anything reads `numbers`.

        Args:
            numbers: A result of the op that holds positions of the channels.
            label: The channels.
            call: The call of the op.
        """
        self.seen.discard(id(numbers))  # the id may be that of a freed tensor; the list keeps this tensor alive
        self.numbers.append((numbers, label, f"is told apart by position in {call.name}", call.path))

    def follow(self, size: Any, label: DimLabel, call: Call) -> bool:
        """Lets the attribute from which a size was read count the channels of a label.

        An attribute is one number, however often it is used. Channels that it counts in two places are therefore tied.

        Args:
            size: The size that the op was given.
            label: The channels that the size counts.
            call: The call of the op.

        Returns:
            False if the size was not read from an attribute.
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
        """Freezes the channels that an attribute counts if the model also computes values with the attribute."""
        for attribute in self.attributes:
            if attribute.source in self.notes.computed_with:
                reason = f"is counted by {attribute.source}, with which the code also computes values"
                self.atoms.freeze(attribute.label, reason, attribute.path)

    def keep_whole(self, label: DimLabel, reason: str, call: Call) -> None:
        """Keeps all channels of a label, and notes that another part of the same cut might vary instead.

        Args:
            label: The label. None has no channels.
            reason: Clause that the user will read.
            call: The call of the op.
        """
        if label is not None:
            self.unfit.append(label)
            self.freeze(label, reason, call)

    def cost(self, constant: int, *sizes: tuple[int, DimLabel]) -> None:
        """Charges multiply-adds: the constant times the product of the sizes.

        Args:
            constant: Product of all factors that do not vary.
            *sizes: Size and label of each dimension that is a factor.
        """
        self.terms.append(Term(constant, sizes))


def raw_labels(tensor: Tensor) -> Labels:
    """Returns the labels as they are stored, including BROADCAST. An in-place reshape (`squeeze_`) makes them void.

    Args:
        tensor: A tensor of the watched run.

    Returns:
        One label per dimension.
    """
    labels: Labels | None = getattr(tensor, _LABELS, None)
    return labels if labels is not None and len(labels) == tensor.ndim else (None,) * tensor.ndim


def has_labels(tensor: Tensor) -> bool:
    """Whether any dimension of the tensor carries channels.

    Args:
        tensor: A tensor of the watched run.

    Returns:
        True if a label is stored on the tensor.
    """
    return hasattr(tensor, _LABELS)


def tensors_in(values: Sequence[Any]) -> Iterator[Tensor]:
    """Yields all tensors in nested lists and tuples.

    Args:
        values: Arguments or results of an op.

    Yields:
        The tensors in order.
    """
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


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
        self._run.records.append(Record(func, path, before, shapes, tuple(raw_labels(tensor) for tensor in outputs)))
        return out


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
        setattr(meta, _LABELS, getattr(tensor, _LABELS))
    return meta
