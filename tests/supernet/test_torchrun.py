"""Two processes under torchrun do what one process does that accumulates their micro-batches.

One test, since starting torchrun takes longer than all that it runs here.
"""

from pathlib import Path

import pytest
import torch

from cafenet.supernet.candidate_choice import Choice, Exact, Race
from tests.helpers.small_training import built, log_of, supernet_of, trained
from tests.helpers.torchrun import under_torchrun

State = dict[str, torch.Tensor]


def test_two_processes(tmp_path):
    under_torchrun(Path(__file__).with_name("two_processes.py"), tmp_path)
    for name in ("exact", "race", "other", "whole", "parts", "stopped"):
        assert_equal(*states(tmp_path, name))
    equal_to_one_process_that_accumulates_the_same_shards(tmp_path, "exact", Exact())
    equal_to_one_process_that_accumulates_the_same_shards(tmp_path, "race", Race(chunk=0.25, min_examples=2))
    # all processes start from the first one's weights and width samples
    assert_equal(states(tmp_path, "other")[0], states(tmp_path, "exact")[0])
    # every process draws dropout masks of its own, and a resumed run goes on with them
    one, two = (torch.load(tmp_path / f"random.{rank}.pt", weights_only=True) for rank in range(2))
    assert not torch.equal(one, two)
    assert_equal(states(tmp_path, "parts")[0], states(tmp_path, "whole")[0])
    a_signal_to_one_process_stopped_both_with_a_checkpoint(tmp_path)


def states(directory: Path, name: str) -> list[State]:
    """What each process had at the end."""
    return [torch.load(directory / f"{name}.{rank}.pt", weights_only=True) for rank in range(2)]


def assert_equal(left: State, right: State) -> None:
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


def equal_to_one_process_that_accumulates_the_same_shards(results: Path, run: str, choice: Choice) -> None:
    directory = results / f"{run} alone"
    alone = trained(supernet_of(built(dropout=0.0), choice=choice), directory, epochs=2, accumulate=2)
    both, lines, expected = states(results, run)[0], log_of(results / run), log_of(directory)
    assert [line["step"] for line in lines] == list(range(1, 9))  # 64 examples, 2 x 8 a step, 2 epochs
    chosen = [(line["candidate"], line["num_candidates"]) for line in lines]
    assert chosen == [(line["candidate"], line["num_candidates"]) for line in expected]
    assert {number for number, _ in chosen} != {0}
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-4)
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(both[name], parameter.detach(), rtol=1e-4, atol=1e-5)
    # the weights did move, by much more than that
    assert (both["model.one.weight"] - built().one.weight.detach()).abs().max() > 0.01


def a_signal_to_one_process_stopped_both_with_a_checkpoint(results: Path) -> None:
    # the 20th example of a process is read for step 3
    messages = [(results / f"stopped.{rank}.txt").read_text() for rank in range(2)]
    assert messages[0] == "stopped by another process after step 3; start again to continue"
    assert messages[1] == "stopped by SIGTERM after step 3; start again to continue"
    assert_equal(states(results, "stopped")[0], states(results, "whole")[0])
