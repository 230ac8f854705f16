"""Loops of other libraries make the choices and weights of our own, in one process and in two, and continue exactly."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.torchrun import under_torchrun
from tests.integrations import loops
from tests.integrations.loops import Trace


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    """The same widths and candidates, and weights within the tolerance of sums in another order."""
    assert left["choices"] == right["choices"]
    assert {candidate for _, candidate in left["choices"]} != {0}  # there was something to choose
    for name, value in left["weights"].items():
        torch.testing.assert_close(value, right["weights"][name], rtol=1e-4, atol=1e-5, msg=name)


def result(trace: Trace) -> dict[str, Any]:
    return {"choices": trace.choices, "weights": trace.weights()}


@pytest.mark.parametrize("bf16", [False, True])
def test_lightning_is_our_loop(tmp_path, bf16):
    pytest.importorskip("lightning")
    options = {"precision": "bf16-mixed"} if bf16 else {}
    theirs = loops.lightning_loop(loops.images(), tmp_path, **options)
    same(result(theirs), result(loops.own_loop(loops.images(), loops.shards(1, True), bf16=bf16)))


@pytest.mark.parametrize("bf16", [False, True])
def test_accelerate_is_our_loop(tmp_path, bf16):
    pytest.importorskip("accelerate")
    options = {"mixed_precision": "bf16"} if bf16 else {}
    theirs = loops.accelerate_loop(loops.images(), tmp_path, **options)
    same(result(theirs), result(loops.own_loop(loops.images(), loops.shards(1, False), bf16=bf16)))


@pytest.mark.parametrize("bf16", [False, True])
def test_trainer_is_our_loop(tmp_path, bf16):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    theirs = loops.trainer_loop(loops.texts(), tmp_path, bf16=bf16)
    own = loops.own_loop(loops.texts(), text_steps(1), own_loss, bf16=bf16)
    same(result(theirs), result(own))


def own_loss(output: Any, target: torch.Tensor) -> torch.Tensor:
    return output.loss


def text_steps(num_processes: int) -> list[list[Any]]:
    steps = loops.shards(num_processes, False, loops.Texts())
    return [[(batch, batch["labels"]) for batch in batches] for batches in steps]


@pytest.mark.parametrize("name", ["lightning", "accelerate"])
def test_trials_and_training_pass_have_one_precision(tmp_path, name):
    pytest.importorskip(name)
    trace, seen = loops.images(), set()
    trace.supernet.model.head.register_forward_hook(
        lambda module, inputs, output: seen.add((torch.is_grad_enabled(), output.dtype))
    )
    if name == "accelerate":
        loops.accelerate_loop(trace, tmp_path, mixed_precision="bf16", epochs=1)
    else:
        loops.lightning_loop(trace, tmp_path, precision="bf16-mixed", epochs=1)
    assert seen == {(True, torch.bfloat16), (False, torch.bfloat16)}
    assert not torch.is_autocast_enabled("cpu")  # it ends with the step


@pytest.mark.parametrize("name", ["lightning", "accelerate"])
def test_checkpoints_of_a_library_continue_exactly(tmp_path, name):
    pytest.importorskip(name)
    loop = {"lightning": loops.lightning_loop, "accelerate": loops.accelerate_loop}[name]
    file = {"lightning": "lightning.ckpt", "accelerate": "accelerate"}[name]
    whole = loop(loops.images(), tmp_path / "whole", epochs=2)
    first = loop(loops.images(), tmp_path / "first", epochs=1)
    rest = loop(loops.images(seed=9), tmp_path / "rest", 2 if name == "lightning" else 1, tmp_path / "first" / file)
    same(result(whole), {"choices": [*first.choices, *rest.choices], "weights": rest.weights()})
    assert all(torch.equal(whole.weights()[key], value) for key, value in rest.weights().items())


def test_a_trainer_that_was_stopped_continues_exactly(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    whole = loops.trainer_loop(loops.texts(), tmp_path / "whole")
    first = loops.trainer_loop(loops.texts(), tmp_path / "parts", stop_at=4)
    rest = loops.trainer_loop(loops.texts(seed=9), tmp_path / "parts", resume=True)
    same(result(whole), {"choices": [*first.choices, *rest.choices], "weights": rest.weights()})


@pytest.mark.slow
def test_two_processes(tmp_path):
    under_torchrun(Path(__file__).with_name("two_processes.py"), tmp_path)
    expected = {
        "plain": loops.own_loop(loops.images(), loops.shards(2, True)),
        "lightning": loops.own_loop(loops.images(), loops.shards(2, True)),
        "accelerate": loops.own_loop(loops.images(), loops.shards(2, False)),
    }
    if (tmp_path / "trainer.0.pt").exists():
        expected["trainer"] = loops.own_loop(loops.texts(), text_steps(2), own_loss)
    for name, own in expected.items():
        files = [tmp_path / f"{name}.{rank}.pt" for rank in range(2)]
        if name != "plain" and not files[0].exists():
            continue  # the library is not installed
        both = [torch.load(file, weights_only=True) for file in files]
        same(both[0], both[1])
        same(both[0], result(own))
