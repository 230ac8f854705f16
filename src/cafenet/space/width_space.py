"""WidthSpace: the widths that a model may have, what they cost, and the slim models that they describe."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, overload

import numpy as np
import numpy.typing as npt
from torch import nn

from cafenet.common.options import MadeBy
from cafenet.common.tables import Shown
from cafenet.errors import WidthError
from cafenet.modules.inputs import call_arguments, running_on
from cafenet.modules.tensors import named_tensors
from cafenet.modules.unwrapping import unwrap
from cafenet.space.cost import Cost
from cafenet.space.extraction import extract
from cafenet.space.layout import IntArray, Layout, Subnet
from cafenet.space.slicing import run_subnet
from cafenet.space.width_forms import ChannelChoice, WidthForms, WidthVector
from cafenet.space.width_group import Frozen, WidthGroup


@dataclass(frozen=True, eq=False)
class WidthSpace:
    """The widths that a traced model may have.

    `cafenet.trace` creates it. FLOPs count one multiply-add as one, for the example inputs as they were given to
    `trace`.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> space.full_widths, space.flops(), space.params()
        ({'0': 16}, 38592, 1898)
        >>> space.flops({"0": 8})
        19296
        >>> space.extract({"0": 8})
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): ReLU()
          (2): Conv2d(8, 10, kernel_size=(3, 3), stride=(1, 1))
        )
    """

    model: nn.Module = field(repr=False)
    """The traced model, which is never changed."""
    groups: tuple[WidthGroup, ...]
    """All searchable groups, in the order in which the model creates their channels."""
    frozen: tuple[Frozen, ...]
    """The layers whose widths cannot be searched, with the reasons."""
    layout: Layout = field(repr=False)
    """Positions of all units in the tensors and attributes of the model."""
    flops_cost: Cost = field(repr=False)
    """FLOPs as a function of the numbers of units."""
    price_params: Callable[[], Cost] = field(repr=False)
    """Function that builds `params_cost` when it is first needed."""
    outputs: tuple[str, ...] = field(default=(), repr=False)
    """Parts of the model's output that keep their sizes, as given to `trace`. An empty tuple means all parts."""

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    @overload
    def flops(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def flops(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def flops(self, widths: Any = None) -> int | IntArray:
        """Counts the multiply-adds of one forward pass.

        Args:
            widths: One width vector, an integer array of shape (N, groups) with one width vector per row, or None for
                full width.

        Returns:
            The number of multiply-adds as an int, or an array of N such numbers if an array of shape (N, groups) was
            given.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.

        Examples:
            >>> import numpy as np
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
            >>> space.flops([8])
            19296
            >>> space.flops(np.array([[4], [8], [16]])).tolist()
            [9648, 19296, 38592]
        """
        return self._price(self.flops_cost, widths)

    @overload
    def params(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def params(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def params(self, widths: Any = None) -> int | IntArray:
        """Counts the parameters. A tied parameter counts once, and buffers do not count.

        Args:
            widths: One width vector, an integer array of shape (N, groups) with one width vector per row, or None for
                full width.

        Returns:
            The number of parameters as an int, or an array of N such numbers if an array of shape (N, groups) was
            given.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.
        """
        return self._price(self.params_cost, widths)

    def flops_share(self, group: str) -> float:
        """Computes the share of all FLOPs that lies in ops which read or write a group.

        The shares of all groups add up to more than 1, because most ops read one group and write another.

        Args:
            group: Name of the group.

        Returns:
            A number from 0 to 1.

        Raises:
            WidthError: If no group has that name.
        """
        chosen = np.array([g.name == self.group(group).name for g in self.groups])
        return self.flops_cost.touched(chosen) / max(self.flops(), 1)

    @property
    def searchable_flops_share(self) -> float:
        """Share of all FLOPs that lies in ops which read or write at least one group."""
        return self.flops_cost.touched(np.ones(len(self.groups), dtype=bool)) / max(self.flops(), 1)

    @cached_property
    def params_cost(self) -> Cost:
        """The number of parameters as a function of the numbers of units."""
        return self.price_params()

    @property
    def full_widths(self) -> dict[str, int]:
        """Widths of the traced model itself, by group name."""
        return {group.name: group.channels for group in self.groups}

    @property
    def min_widths(self) -> dict[str, int]:
        """Widths of the smallest subnet, by group name."""
        return {group.name: group.min_width for group in self.groups}

    def group(self, name: str) -> WidthGroup:
        """Finds a group by its name.

        Args:
            name: Name of the group.

        Returns:
            The group.

        Raises:
            WidthError: If no group has that name. The message suggests similar names.
        """
        return self._forms.group(name)

    def widths_dict(self, widths: WidthVector | None) -> dict[str, int]:
        """Checks a width vector and completes it.

        Args:
            widths: One width vector, or None for full width.

        Returns:
            One width for every group, by name, in group order.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> cafenet.trace(model, torch.zeros(1, 3, 8, 8)).widths_dict([12])
            {'0': 12}
        """
        row = self._forms.row(widths)
        return {group.name: int(width) for group, width in zip(self.groups, row, strict=True)}

    def subnet(self, widths: WidthVector | None = None, *, channels: ChannelChoice | None = None) -> Subnet:
        """Selects the units that a subnet keeps.

        Args:
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.

        Returns:
            The kept units of every group.

        Raises:
            WidthError: If both arguments are given, or if one of them does not fit the groups.
        """
        if channels is not None:
            if widths is not None:
                raise WidthError("give either widths or channels, not both")
            return Subnet(self._forms.units(channels))
        row = self._forms.row(widths)
        return Subnet(tuple(np.arange(width // g.divisor) for g, width in zip(self.groups, row.tolist(), strict=True)))

    def run(
        self,
        inputs: Any,
        widths: WidthVector | None = None,
        *,
        channels: ChannelChoice | None = None,
        model: nn.Module | None = None,
    ) -> Any:
        """Runs the model at other widths without copying it.

        Args:
            inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments, as for `trace`.
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.
            model: A model with the same tensors as the traced one, to run in its place.

        Returns:
            The output of the model's own forward.

        Raises:
            WidthError: If the widths or channels do not fit the groups, the tensors of `model` differ from the traced
                ones, or PyTorch refuses the inputs.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> images = torch.randn(1, 3, 8, 8)
            >>> space = cafenet.trace(model, images)
            >>> torch.allclose(space.run(images, [8]), space.extract([8])(images), atol=1e-6)
            True
        """
        args, kwargs = call_arguments(inputs)
        subnet = self.subnet(widths, channels=channels)
        source = self._source(model)
        with running_on("the inputs", WidthError):
            return run_subnet(source, self.layout, subnet, args, kwargs)

    def extract(
        self,
        widths: WidthVector | None = None,
        *,
        channels: ChannelChoice | None = None,
        model: nn.Module | None = None,
    ) -> nn.Module:
        """Builds the slim model: a plain, smaller module of the original class, with the kept part of the weights.

        Args:
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.
            model: A model with the same tensors as the traced one, from which the weights are taken.

        Returns:
            A new module, which `cafenet.save` can write. It shares no memory with the model.

        Raises:
            WidthError: If the widths or channels do not fit the groups, or the tensors of `model` differ from the
                traced ones.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
            >>> space.extract({"0": 4})[0]
            Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
            >>> space.extract(channels={"0": [1, 5, 7]})[2]
            Conv2d(3, 10, kernel_size=(3, 3), stride=(1, 1))
        """
        subnet = self.subnet(widths, channels=channels)
        kept = {
            group.name: np.flatnonzero(np.isin(group.unit_of_channel, units)).tolist()
            for group, units in zip(self.groups, subnet.units, strict=True)
        }
        widths = {name: len(channels) for name, channels in kept.items()}
        units = {group.name: group.unit_of_channel for group in self.groups}
        return extract(self._source(model), self.layout, subnet, widths, kept, units_of_channels=units)

    def _shown(self) -> Shown:
        rows = [
            (group.name, f"{group.channels:,}", f"{self.flops_share(group.name):.1%}", f"{group.sensitivity:,.0f}")
            for group in self.groups
        ]
        return Shown(
            f"Width space of {type(self.model).__name__}: {len(self.groups)} groups",
            ("group", "channels", "FLOPs share", "FLOPs per channel"),
            rows,
            f"{self.flops():,} FLOPs (one multiply-add is one), {self.params():,} parameters, "
            f"{self.searchable_flops_share:.1%} of FLOPs searchable, {len(self.frozen)} layers frozen",
        )

    def _source(self, model: nn.Module | None) -> nn.Module:
        if model is None:
            return self.model
        model = unwrap(model)
        found, traced = ({name: t.shape for name, t in named_tensors(each).items()} for each in (model, self.model))
        wrong = [name for name in self.layout.axes if found.get(name) != traced[name]]
        if wrong:
            raise WidthError(
                f"the model must have the tensors of the traced one, but {wrong[0]} is "
                f"{list(found[wrong[0]]) if wrong[0] in found else 'missing'} instead of {list(traced[wrong[0]])}"
            )
        return model

    @cached_property
    def _forms(self) -> WidthForms:
        return WidthForms(self.groups)

    def _price(self, cost: Cost, widths: Any) -> int | IntArray:
        rows, divisors = self._forms.rows(widths), self._forms.limits[:, 2]
        priced = cost.price(rows // divisors if (divisors > 1).any() else rows)
        return priced if np.ndim(widths) == 2 else int(priced[0])


TracedSpace = Annotated[WidthSpace, MadeBy("cafenet.trace")]
"""The annotation by which `check_arguments` checks width spaces."""
