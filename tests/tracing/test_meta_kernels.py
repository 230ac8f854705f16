"""Results that skip PyTorch's meta kernels are those of the meta kernels."""

import itertools

import pytest
import torch
from torch import Tensor

from cafenet.tracing.meta_kernels import run_op

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def expect_same(func, *args) -> None:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    found, wanted = run_op(func, args, {}, tensors), func(*args)
    assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)


@pytest.mark.parametrize("size", [(9,), (9, 8), (9, 8, 7)])
def test_convolutions(size):
    kernel = (3, 2, 1)[: len(size)]
    for stride, padding, dilation, groups in itertools.product((1, 2), (0, 1), (1, 2), (1, 2)):
        lists = ([each] * len(size) for each in (stride, padding, dilation))
        inputs, weight = meta(2, 4, *size), meta(6, 4 // groups, *kernel)
        expect_same(aten.convolution.default, inputs, weight, meta(6), *lists, False, [0] * len(size), groups)


@pytest.mark.parametrize(
    ("inputs", "weight", "bias"),
    [
        (meta(1, 4, 8, 8), meta(6, 5, 3, 3), None),
        (meta(1, 4, 2, 2), meta(6, 4, 3, 3), None),
    ],
)
def test_convolutions_that_do_not_fit_raise(inputs, weight, bias):
    with pytest.raises(RuntimeError):
        run_op(
            aten.convolution.default,
            (inputs, weight, bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
            {},
            [inputs, weight],
        )


@pytest.mark.parametrize("func", [aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor])
def test_sums(func):
    plain, turned = meta(2, 3, 4), meta(2, 4, 3).transpose(1, 2)
    others = [meta(2, 3, 4), meta(3, 1), turned, meta(2, 3, 4, dtype=torch.float64), meta(2, 3, 4, dtype=torch.int64)]
    for left, right in itertools.product((plain, turned), others):
        expect_same(func, left, right)
    with pytest.raises(RuntimeError):
        run_op(func, (plain, meta(2, 5, 4)), {}, [plain])
