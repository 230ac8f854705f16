"""Recurrent layers keep their sizes; what stands before and after them is searched."""

import pytest
import torch
from torch import nn

from tests.helpers.networks import proven, reasons, sizes

TOKENS = torch.arange(12).view(2, 6)


class Tagger(nn.Module):
    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.before = nn.Linear(8, 12)
        self.recurrent = recurrent
        self.after = nn.Linear(10, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens):
        x = self.before(self.table(tokens).relu())
        return self.head(self.after(self.recurrent(x)[0]).relu())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"hidden_size": 5, "bidirectional": True}], ids=str)
def test_recurrent_layer(kind: type[nn.RNNBase], options: dict):
    model = Tagger(kind(**{"input_size": 12, "hidden_size": 10, "batch_first": True} | options))
    before = model(TOKENS)
    space = proven(model, TOKENS)
    assert sizes(space) == {"table": (8, 1), "after": (16, 1)}
    assert "belongs to a recurrent layer" in reasons(space)["before"]
    assert model(TOKENS).equal(before)
    slim = space.extract({"table": 3, "after": 7})
    assert slim(TOKENS).shape == (2, 6, 5)
    torch.testing.assert_close(slim(TOKENS), space.run(TOKENS, {"table": 3, "after": 7}))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cell(kind: type[nn.RNNCellBase]):
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = kind(12, 10)

        def forward(self, x):
            state, outputs = None, []
            for step in x.unbind(1):
                state = self.cell(step, state)
                outputs.append(state[0] if isinstance(state, tuple) else state)
            return (torch.stack(outputs, 1),)

    space = proven(Tagger(Steps()), TOKENS)
    assert sizes(space) == {"table": (8, 1), "after": (16, 1)}
    assert "belongs to a recurrent cell" in reasons(space)["before"]


def test_hand_written_recurrence():
    """Without packed gates there is nothing to keep: the state is an ordinary width."""

    class Simple(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(4, 8)
            self.keep = nn.Linear(8, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            state = self.read(x[:, 0]).tanh()
            for step in range(1, x.shape[1]):
                state = (self.read(x[:, step]) + self.keep(state)).tanh()
            return self.head(state)

    space = proven(Simple(), torch.zeros(2, 3, 4))
    assert sizes(space) == {"read": (8, 1)}
    # a batch of 2: three steps with 4*8, two with 8*8, the head 8*5
    assert space.flops() == 2 * (3 * 32 + 2 * 64 + 40)
