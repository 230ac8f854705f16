"""Parameters that are cut in pieces are refused: channels are slices of whole parameters."""

import pytest
import torch
from torch import distributed as processes
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import cafenet
from cafenet.errors import TraceError, TrainingError
from tests.helpers.small_training import batch, built

BATCH = batch()


@pytest.fixture
def one_process():
    """A group of one process, which FSDP asks for."""
    processes.init_process_group("gloo", store=processes.HashStore(), rank=0, world_size=1)
    yield processes.device_mesh.init_device_mesh("cpu", (1,))
    processes.destroy_process_group()


def refusal(name: str) -> str:
    return (
        f"^parameters must be whole in every process, but {name} is cut in pieces by FSDP or DeepSpeed ZeRO-3; "
        "trace it before"
    )


def sharded(module: nn.Module, mesh) -> nn.Module:
    fully_shard(module, mesh=mesh)
    return module


def wrapped(module: nn.Module, use_orig_params: bool) -> nn.Module:
    return FullyShardedDataParallel(module, use_orig_params=use_orig_params, device_id=torch.device("cpu"))


def test_a_model_in_pieces_is_refused_before_it_is_traced(one_process):
    with pytest.raises(TraceError, match=refusal(r"one\.weight")):
        cafenet.Supernet(sharded(built(), one_process), BATCH[0])
    with pytest.raises(TraceError, match=refusal(r"_flat_param|_fsdp_wrapped_module\._flat_param")):
        cafenet.trace(wrapped(built(), use_orig_params=False), BATCH[0])


def test_a_supernet_in_pieces_is_refused_at_its_first_step(one_process):
    supernet = cafenet.Supernet(built(), BATCH[0])
    sharded(supernet, one_process)
    with pytest.raises(TrainingError, match=refusal(r"model\.one\.weight")):
        supernet.step(BATCH, "cross_entropy")


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_so_is_one_within_the_older_fsdp(one_process, use_orig_params):
    supernet = cafenet.Supernet(built(), BATCH[0])
    wrapped(supernet, use_orig_params)
    with pytest.raises(TrainingError, match=refusal(r"[\w.]+")):
        supernet.step(BATCH, "cross_entropy")


def test_a_parameter_with_the_mark_of_deepspeed_is_refused():
    supernet = cafenet.Supernet(built(), BATCH[0])
    supernet.model.two.weight.ds_id = 3
    with pytest.raises(TrainingError, match=refusal(r"model\.two\.weight")):
        supernet.step(BATCH, "cross_entropy")


def test_whole_parameters_in_a_group_of_processes_are_not(one_process):
    supernet = cafenet.Supernet(built(), BATCH[0])
    supernet.step(BATCH, "cross_entropy").loss.backward()
    assert supernet.model.one.weight.grad is not None
