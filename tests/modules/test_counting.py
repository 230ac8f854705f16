"""Counting products as they run, and the two lists that decide what is a product."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import cafenet
from cafenet.modules.calling import as_written
from cafenet.modules.counting import ProductCounter, may_multiply
from cafenet.tracing.pricing import multiplies

A, B, C = torch.randn(5, 8), torch.randn(8, 3), torch.randn(2, 5, 8)


def aten_ops():
    """Every op of PyTorch that is not made of others, with the number of tensors that it takes."""
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace != "aten" or name.endswith("_") or schema.overload_name.startswith("out"):
            continue
        if "out" in schema.overload_name.split("_") or not hasattr(torch.ops.aten, name):
            continue
        func = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
        if func is None or is_made_of_others(func):
            continue
        types = [str(argument.type) for argument in schema.arguments if "Tensor" in str(argument.type)]
        yield func, 2 if any("List[Tensor]" in each for each in types) else len(types)


def is_made_of_others(func) -> bool:
    try:
        return func._can_decompose()
    except RuntimeError:  # an op of TorchScript alone
        return True


def test_both_lists_agree_on_all_ops_of_pytorch():
    """Tracing asks for names of products; counting asks for what is known to be none. New ops must be put in one."""
    ops = list(aten_ops())
    assert len(ops) > 500
    named = {str(func) for func, _ in ops if multiplies(func)}
    left = {str(func) for func, num_tensors in ops if may_multiply(func, num_tensors)}
    assert named == left
    assert {"aten.mm.default", "aten._grouped_mm.default", "aten.mkldnn_rnn_layer.default"} <= named


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (lambda: A @ B, 5 * 8 * 3),
        (lambda: torch.addmm(torch.ones(3), A, B), 5 * 8 * 3),
        (lambda: A.mv(B[:, 0]), 5 * 8),
        (lambda: torch.addmv(torch.ones(5), A, B[:, 0]), 5 * 8),
        (lambda: A[0].dot(A[1]), 8),
        (lambda: torch.vdot(A[0], A[1]), 8),
        (lambda: C @ B, 2 * 5 * 8 * 3),
        (lambda: C.bmm(C.mT), 2 * 5 * 8 * 5),
        (lambda: torch.baddbmm(torch.ones(1), C, C.mT), 2 * 5 * 8 * 5),
        (lambda: torch.addbmm(torch.ones(1), C, C.mT), 2 * 5 * 8 * 5),
        (lambda: torch.einsum("bij,bkj->bik", C, C), 2 * 5 * 8 * 5),
        (lambda: nn.functional.linear(C, B.T, torch.ones(3)), 2 * 5 * 8 * 3),
        (lambda: nn.Bilinear(4, 6, 3)(torch.randn(5, 4), torch.randn(5, 6)), 5 * 3 * 4 * 6),
        (lambda: nn.Conv2d(4, 6, 3, groups=2)(torch.randn(2, 4, 5, 5)), 2 * 6 * 9 * 9 * 2),
        (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2)(torch.randn(2, 4, 5, 5)), 2 * 4 * 25 * 9 * 3),
        (lambda: torch.conv_tbc(torch.randn(7, 2, 4), torch.randn(3, 4, 6), torch.zeros(6)), 5 * 2 * 6 * 3 * 4),
        (lambda: nn.LSTM(8, 6)(torch.randn(5, 2, 8)), 5 * 2 * 4 * 6 * (8 + 6)),
        (lambda: nn.GRU(8, 6)(torch.randn(5, 2, 8)), 5 * 2 * 3 * 6 * (8 + 6)),
        (lambda: torch.cdist(A, A, p=1), 5 * 5 * 8),
        (lambda: torch.pdist(A), 10 * 8),
        (lambda: nn.functional.scaled_dot_product_attention(C, C, C), 2 * 2 * 5 * 5 * 8),
        (lambda: nn.functional.layer_norm(A, (8,), torch.ones(8), torch.ones(8)) * 2 + A.softmax(1), 0),
        (lambda: torch.cat([A, A]).index_select(0, torch.tensor([1])).sort().values.cumsum(0), 0),
        (lambda: torch.where(A > 0, A, -A).index_put((torch.tensor([0]),), A[:1]), 0),
    ],
)
@pytest.mark.parametrize("decomposed", [True, False])
def test_products_by_hand(run, count: int, decomposed: bool):
    with torch.no_grad(), ProductCounter() as counter:
        if decomposed:
            with as_written():
                run()
        else:
            run()
    assert counter.total == count
    assert counter.uncounted == {}


@pytest.mark.parametrize(("offsets", "a", "b"), [([3, 8], (8, 16), (2, 16, 32)), (None, (2, 8, 16), (2, 16, 32))])
def test_grouped_products(offsets, a, b):
    """Mixtures of experts: 8 rows of 16, each times the matrix of its expert; or all rows of each expert's own."""
    factors = torch.randn(a, dtype=torch.bfloat16), torch.randn(b, dtype=torch.bfloat16)
    offs = None if offsets is None else torch.tensor(offsets, dtype=torch.int32)
    with torch.no_grad(), ProductCounter() as counter:
        torch._grouped_mm(*factors, offs=offs)
    assert counter.total == (8 if offsets else 2 * 8) * 16 * 32


def test_agrees_with_pytorchs_own_counter():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad(), as_written(), ProductCounter() as ours:
        model(x)
    with torch.no_grad(), as_written(), FlopCounterMode(display=False) as theirs:
        model(x)
    assert ours.total == theirs.get_total_flops() // 2 == 2 * 5 * (4 * 64 + 2 * 128) + 2 * 2 * 2 * 2 * 25 * 4 // 2


def test_a_product_that_nobody_counts_is_listed():
    with torch.no_grad(), ProductCounter() as counter:
        torch.sparse.sampled_addmm(torch.eye(3).to_sparse_csr(), torch.ones(3, 2), torch.ones(2, 3))
    assert list(counter.uncounted) == ["aten.sparse_sampled_addmm.default"]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Bilinear(6, 6, 4),
        lambda: Middle(torch.mv),
        lambda: Middle(lambda a, b: torch.addmv(torch.zeros(5), a, b)),
        lambda: Middle(lambda a, b: torch.cdist(a, a)[:, :1]),
    ],
    ids=["bilinear", "mv", "addmv", "cdist"],
)
def test_products_without_a_rule_are_priced(layer):
    """Their factors are frozen, their price is in the FLOPs, and verify counts the same."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle, self.free, self.head = nn.Linear(8, 6), layer(), nn.Linear(8, 7), nn.Linear(7, 3)

        def forward(self, x):
            y = self.first(x)
            return self.middle(y, y), self.head(self.free(x).relu())

    space = cafenet.trace(Net(), A)
    assert cafenet.verify(space, A, trials=2).problems == []
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        space.model(A)
    assert space.flops() > counter.get_total_flops() // 2


class Middle(nn.Module):
    def __init__(self, product) -> None:
        super().__init__()
        self.product = product

    def forward(self, x, y):
        return self.product(x[:, :5].T @ y, y[0])
