"""Deep copies of models, and models that cannot be copied."""

import re
import threading

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import CafeNetError
from cafenet.modules.copying import copy_of
from tests.helpers.networks import IMAGE, Forward, pooled


def test_a_kept_result_of_the_forward_is_copied():
    model = nn.Linear(2, 2)
    model.last = model(torch.ones(1, 2))
    assert torch.equal(copy_of(model).last, model.last)


def test_a_model_with_a_lock_is_traced_and_its_copy_refused_in_one_line():
    model = Forward(lambda net, x: net.head(pooled(net.conv(x))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))
    model.lock = threading.Lock()
    space = cafenet.trace(model, IMAGE)
    line = "the model must be copied by copy.deepcopy, but that raised TypeError: cannot pickle '_thread.lock' object; "
    for use in (lambda: space.extract(space.min_widths), lambda: cafenet.Supernet(model, IMAGE, budget="50%")):
        with pytest.raises(CafeNetError, match="^" + re.escape(line)):
            use()
