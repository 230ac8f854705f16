"""A search and a run trace every model once for each of its shapes."""

import pytest
import torch
from torch import nn

import cafenet
from tools.docs.tiny_jobs import tiny_run, tiny_search
from tools.docs.walk import walked


@pytest.mark.parametrize(("work", "num_shapes"), [(tiny_search, 3), (tiny_run, 5)])
def test_every_model_is_traced_once_per_shape(work, num_shapes):
    """A search: the model, that of the second stage and the slim one. A run: the model and what four methods found."""
    walk = walked(work)
    assert walk.most_traces == 1
    assert len(walk.traces) <= num_shapes
    assert len(walk.hops) >= len(walk.files) > 50
    assert {"tracing", "supernet", "searching"} < walk.packages
    assert ("pipeline", "searching") in walk.package_hops


def test_a_second_trace_of_one_shape_is_counted():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))

    def work(_):
        for size in (1, 1, 2):
            cafenet.trace(model, torch.zeros(size, 4))

    assert sorted(walked(work).traces.values()) == [1, 2]
