"""The outputs that matter keep their sizes; others may vary where the user says so."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import cafenet
from cafenet.errors import TraceError
from tests.helpers.networks import IMAGE, Forward, pooled, proven, reasons, sizes


@dataclass
class Answer:
    logits: Tensor
    states: tuple[Tensor, ...]


def net(answer) -> nn.Module:
    def forward(net, x):
        states = (net.a(x), net.b(net.a(x).relu()))
        return answer(net.head(pooled(states[-1])), states)

    return Forward(forward, a=nn.Conv2d(3, 8, 1), b=nn.Conv2d(8, 6, 1), head=nn.Linear(6, 5))


@pytest.mark.parametrize(
    ("answer", "logits", "state"),
    [
        (lambda logits, states: {"logits": logits, "states": states}, "logits", "states.0"),
        (lambda logits, states: Answer(logits, states), "logits", "states.0"),
        (lambda logits, states: (logits, *states), 0, "1"),
        (lambda logits, states: [states, [logits]], "1.0", "0.0"),
    ],
    ids=["dict", "object", "tuple", "lists"],
)
def test_only_the_chosen_output_keeps_its_size(answer, logits: str | int, state: str):
    model = net(answer)
    (entry, *_) = cafenet.trace(model, IMAGE, verify=False, outputs=[logits, state]).frozen
    assert (entry.name, entry.reason) == ("a", "is an output of the model")
    space = proven(model, IMAGE, outputs=logits)
    assert space.outputs == (str(logits),)
    assert sizes(space) == {"a": (8, 1), "b": (6, 1)}
    assert reasons(space) == {"head": "is an output of the model"}


def test_everything_is_kept_without_a_choice_and_the_reason_tells_of_it():
    with pytest.raises(TraceError, match=r"a: is an output of the model \(states.0\); pass outputs="):
        cafenet.trace(net(Answer), IMAGE)


def test_several_outputs_under_one_name():
    model = Forward(
        lambda net, x: {"all": (net.a(x), net.b(x)), "rest": net.c(x)},
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 6, 1),
        c=nn.Conv2d(3, 4, 1),
    )
    assert sizes(proven(model, IMAGE, outputs="all")) == {"c": (4, 1)}


def test_verify_compares_the_chosen_outputs():
    """A wrong value in the chosen output is found, one beside it is not looked at."""
    calls = itertools.count()
    model = net(lambda logits, states: {"logits": logits, "noise": torch.full(states[0].shape, float(next(calls)))})
    for outputs, is_right in (("logits", True), (None, False)):
        result = cafenet.verify(cafenet.trace(model, IMAGE, outputs=outputs), IMAGE)
        assert result.ok == is_right


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("logit", r"'logit' is no part of it; it returns logits, states.0, states.1; did you mean logits\?"),
        ([], "outputs must be a name or an index"),
        (1.5, "outputs must be a name or an index"),
        ([True], "outputs must be a name or an index"),
        ("", "outputs must be a name or an index"),
    ],
)
def test_bad_choices(outputs, message: str):
    with pytest.raises(TraceError, match=message):
        cafenet.trace(net(Answer), IMAGE, outputs=outputs)


def test_a_model_with_one_output_needs_no_choice():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 5, 1))
    with pytest.raises(TraceError, match="returns one tensor, which needs no name"):
        cafenet.trace(model, IMAGE, outputs=0)


def test_train_mode_may_return_something_else():
    """The auxiliary head runs in train mode only, where the model returns a tuple."""

    def forward(net, x):
        x = net.conv(x)
        logits = net.head(pooled(x))
        return (logits, net.aux(pooled(x))) if net.training else {"logits": logits, "features": x}

    model = Forward(forward, conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5), aux=nn.Linear(8, 5))
    assert sizes(proven(model, IMAGE, outputs="logits")) == {"conv": (8, 1)}
