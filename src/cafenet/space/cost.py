"""Costs of widths as polynomials: FLOPs are a sum of products of linear forms in the numbers of units.

A convolution from group a to group b costs constant x a x b. The cost of a network is therefore a constant plus linear
and quadratic terms in its widths, and one matrix product prices a million width vectors. All values are whole numbers
below 2^53, which float64 represents exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Product:
    """A constant times a product of linear forms in the numbers of units."""

    constant: int
    """The constant factor."""
    forms: tuple[FloatArray, ...]
    """The linear forms. Each is an array of its fixed part followed by one coefficient per group."""

    def value(self, units: FloatArray) -> float:
        """Evaluates the product.

        Args:
            units: Number of units of each group.

        Returns:
            The value of the product.
        """
        result = float(self.constant)
        for form in self.forms:
            result *= form[0] + float(form[1:] @ units)
        return result

    def touches(self) -> npt.NDArray[np.bool_]:
        """Finds the groups that the product depends on.

        Returns:
            One truth value per group.
        """
        touched: npt.NDArray[np.bool_] = np.any([form[1:] > 0 for form in self.forms], axis=0)
        return touched


class Cost:
    """A sum of products, which can be priced for one width vector or for many at once.

    Args:
        products: The products to add up.
        full_units: Number of units of each group at full width.
    """

    def __init__(self, products: Sequence[Product], full_units: IntArray) -> None:
        num_groups = full_units.size
        self.products = tuple(products)
        self._full = full_units.astype(np.float64)
        self._constant, self._linear = 0.0, np.zeros(num_groups)
        self._quadratic = np.zeros((num_groups, num_groups))
        self._higher: list[Product] = []
        for product in self.products:
            self._add(_simplified(product))

    def _add(self, product: Product) -> None:
        if not product.forms:
            self._constant += product.constant
        elif len(product.forms) == 1:
            self._constant += product.constant * product.forms[0][0]
            self._linear += product.constant * product.forms[0][1:]
        elif len(product.forms) == 2:
            left, right = product.forms
            self._constant += product.constant * left[0] * right[0]
            self._linear += product.constant * (left[0] * right[1:] + right[0] * left[1:])
            # A form has few groups: the whole outer product would make a deep network's cost cubic in its depth.
            rows, columns = (np.flatnonzero(form[1:]) for form in product.forms)
            self._quadratic[np.ix_(rows, columns)] += product.constant * np.outer(left[1 + rows], right[1 + columns])
        else:
            self._higher.append(product)

    def price(self, units: IntArray) -> IntArray:
        """Computes the exact costs of many width vectors.

        Args:
            units: Array of shape (N, groups) with numbers of units.

        Returns:
            The N costs.
        """
        total = np.empty(units.shape[0], dtype=np.int64)
        for start in range(0, units.shape[0], _ROWS_AT_ONCE):
            rows = units[start : start + _ROWS_AT_ONCE].astype(np.float64)
            part = np.einsum("ng,ng->n", rows @ self._quadratic + self._linear, rows) + self._constant
            for product in self._higher:
                part += product.constant * np.prod([form[0] + rows @ form[1:] for form in product.forms], axis=0)
            total[start : start + _ROWS_AT_ONCE] = part
        return total

    def gradient(self) -> FloatArray:
        """Computes the cost of one more unit of each group at full width.

        Returns:
            One number per group.
        """
        gradient = self._linear + (self._quadratic + self._quadratic.T) @ self._full
        for product in self._higher:
            values = [form[0] + float(form[1:] @ self._full) for form in product.forms]
            for number, form in enumerate(product.forms):
                gradient = gradient + product.constant * np.prod(np.delete(values, number)) * form[1:]
        return gradient

    def touched(self, groups: npt.NDArray[np.bool_]) -> float:
        """Computes the cost, at full width, of all products that depend on at least one of the given groups.

        Args:
            groups: One truth value per group.

        Returns:
            The cost of these products.
        """
        values, starts, members = self._members
        if not values.size:
            return 0.0
        return float(values[np.logical_or.reduceat(groups[members], starts)].sum())

    @cached_property
    def _members(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Values at full width of the products that depend on groups, the starts of their groups in a list, and that
        list.
        """
        touched = [(product, np.flatnonzero(product.touches())) for product in self.products if product.forms]
        touched = [(product, groups) for product, groups in touched if groups.size]
        values = np.array([product.value(self._full) for product, _ in touched])
        sizes = np.array([groups.size for _, groups in touched], dtype=np.int64)
        members = np.concatenate([np.empty(0, dtype=np.int64), *(groups for _, groups in touched)])
        return values, np.cumsum(sizes) - sizes, members


def _simplified(product: Product) -> Product:
    """Moves forms that depend on no group into the constant."""
    constant, forms = product.constant, []
    for form in product.forms:
        if form[1:].any():
            forms.append(form)
        else:
            constant *= int(form[0])
    return Product(constant, tuple(forms))
