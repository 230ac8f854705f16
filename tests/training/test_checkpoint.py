"""Checkpoints are whole or not there, and are continued only by the run that they belong to."""

import numpy as np
import pytest
import torch
from torch import nn

from cafenet.errors import CheckpointError
from cafenet.space.bins import uniform_bins
from cafenet.supernet.candidate_choice import Race
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.train import train_supernet
from cafenet.training import checkpoint
from cafenet.training.checkpoint import digest_of_checkpoint, load_checkpoint, read_checkpoint, write_checkpoint
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig
from tests.helpers.small_training import Plain, Residual, built, config, data, log_of, supernet_of, trained


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "run" / "x.pt"
    assert read_checkpoint(path, {}) is None
    write_checkpoint(path, {"identity": {"a": 1, "b": {"c": (2, 3)}}, "weights": torch.arange(3)})
    content = read_checkpoint(path, {"a": 1, "b": {"c": (2, 3)}})
    assert content["weights"].tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["x.pt"]


def test_the_digest_is_that_of_the_weights_alone(tmp_path):
    """Two trainings to the same weights write different files where one of them was interrupted."""
    one, two, other = tmp_path / "one.pt", tmp_path / "two.pt", tmp_path / "other.pt"
    write_checkpoint(one, {"model": {"weight": torch.arange(3)}, "begins_with": {"weights": "a"}})
    write_checkpoint(two, {"begins_with": {"weights": "b"}, "model": {"weight": torch.arange(3)}})
    write_checkpoint(other, {"model": {"weight": torch.arange(1, 4)}})
    assert one.read_bytes() != two.read_bytes()
    assert digest_of_checkpoint(one) == digest_of_checkpoint(two) != digest_of_checkpoint(other)
    one.write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"the checkpoint .*one.pt is broken"):
        digest_of_checkpoint(one)
    write_checkpoint(one, {"step": 1})
    with pytest.raises(CheckpointError, match=r"must hold the state of this training, but does not: KeyError: 'model'"):
        digest_of_checkpoint(one)


def test_numbers_of_numpy_are_read(tmp_path):
    """Without the code of NumPy, which is not run when a file is read."""
    content = {
        "identity": {"lr": np.float64(0.1), "sizes": [np.int64(3), (np.float32(0.5),)]},
        "weights": torch.ones(1),
    }
    write_checkpoint(tmp_path / "x.pt", content)
    read = read_checkpoint(tmp_path / "x.pt", {"lr": 0.1, "sizes": [3, (0.5,)]})
    assert [type(read["identity"]["lr"]), type(read["identity"]["sizes"][0])] == [float, int]


def test_a_new_checkpoint_replaces_the_old_one_in_one_move(tmp_path):
    path = tmp_path / "x.pt"
    write_checkpoint(path, {"identity": {}, "number": 1})
    with path.open("rb") as reader:
        write_checkpoint(path, {"identity": {}, "number": 2})
        assert torch.load(reader, weights_only=True)["number"] == 1  # whoever reads the old one is not disturbed
    assert read_checkpoint(path, {})["number"] == 2


def test_a_write_that_fails_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    write_checkpoint(path, {"identity": {}, "number": 1})

    def full_disk(content, file):
        file.write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(CheckpointError, match=r"cannot be written: No space left on device; the last one is kept"):
        write_checkpoint(path, {"identity": {}, "number": 2})
    monkeypatch.undo()
    assert read_checkpoint(path, {})["number"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["x.pt"]


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_checkpoint(tmp_path / "file" / "x.pt", {})


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04" + bytes(100)])
def test_broken_files(tmp_path, content):
    path = tmp_path / "supernet.pt"
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"supernet.pt is broken: \w+.*no older one .*; put a copy .* or remove it to train from"
    ):
        read_checkpoint(path, {})
    assert path.read_bytes() == content


def test_the_last_but_one_is_kept_and_that_of_a_removed_training_is_not(tmp_path):
    path, previous = tmp_path / "x.pt", tmp_path / "x.previous.pt"
    for number in (1, 2, 3):
        write_checkpoint(path, {"identity": {}, "number": number})
    assert [load_checkpoint(each)["number"] for each in (path, previous)] == [3, 2]
    path.unlink()
    assert read_checkpoint(path, {}) is None  # whoever removes it begins anew
    write_checkpoint(path, {"identity": {}, "number": 4})
    assert [file.name for file in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-500], lambda whole: b"", lambda whole: bytes(len(whole))])
def test_a_broken_checkpoint_is_put_aside_and_the_one_before_it_continued(damage, tmp_path, caplog):
    """Steps 3 and 4 are trained again, and everything ends bit for bit as without the damage."""
    whole = supernet_of()
    trained(whole, tmp_path / "whole")
    trained(supernet_of(), tmp_path / "run", max_steps=4, checkpoint_every=2)
    path = tmp_path / "run" / "supernet.pt"
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    supernet = supernet_of()
    trained(supernet, tmp_path / "run")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, supernet.model.state_dict()[name])
    steps = [[line[key] for key in ("step", "loss")] for line in log_of(tmp_path / "run")]
    assert steps == [[line[key] for key in ("step", "loss")] for line in log_of(tmp_path / "whole")]
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"the checkpoint {path} is broken: " in line
    assert line.endswith("; the one before it is taken, and the broken one kept as supernet.pt.damaged")
    assert path.with_name("supernet.pt.damaged").read_bytes() == broken


def test_both_checkpoints_broken(tmp_path):
    trained(supernet_of(), tmp_path, max_steps=4, checkpoint_every=2)
    for name in ("supernet.pt", "supernet.previous.pt"):
        (tmp_path / name).write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"supernet.pt is broken.*no older one that can be read; put a copy"):
        trained(supernet_of(), tmp_path)
    assert sorted(file.name for file in tmp_path.glob("*.pt*")) == ["supernet.previous.pt", "supernet.pt"]


def test_other_files(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of cafenet"):
        read_checkpoint(path, {})
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of cafenet"):
        read_checkpoint(path, {})
    torch.save({"format": checkpoint.FORMAT, "format_version": 99}, path)
    with pytest.raises(CheckpointError, match="must have format version 1, but has 99; use another directory"):
        read_checkpoint(path, {})


def test_a_file_that_would_run_code_is_refused(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (pytest.fail, ("code of a checkpoint was run",))

    path = tmp_path / "x.pt"
    torch.save({"format": checkpoint.FORMAT, "format_version": 1, "identity": Harmful()}, path)
    with pytest.raises(CheckpointError, match="is broken"):
        read_checkpoint(path, {})


def wider() -> nn.Module:
    model = built(Plain)
    model.two = nn.Conv2d(8, 16, 3, padding=1, bias=False)
    model.norm_two = nn.BatchNorm2d(16)
    model.head = nn.Linear(16, 4)
    return model


@pytest.mark.parametrize(
    ("make", "options", "difference"),
    [
        (lambda: supernet_of(built(Residual)), {}, r"shapes\.one\.weight was \[8, 3, 3, 3\], is None"),
        (lambda: supernet_of(wider()), {}, r"shapes\.two\.weight was \[12, 8, 3, 3\], is \[16, 8, 3, 3\]"),
        (lambda: supernet_of(sharing=LocallyFree(2)), {}, r"sharing was .*r=1.*, is .*r=2"),
        (lambda: supernet_of(choice=Race()), {}, r"choice was 'Exact\(\)', is 'Race\("),
        (
            lambda: supernet_of(bins=uniform_bins(supernet_of().space, 2)),
            {},
            r"bins\.one was \[2, 2\], is \[4, 4\]; bins\.two was \[3, 3\], is \[6, 6\]",
        ),
        (supernet_of, {"seed": 1}, r"\(config\.seed was 0, is 1\)"),
        (supernet_of, {"lr": 0.2}, r"\(config\.optimizer\.lr was 0\.05, is 0\.2\)"),
        (supernet_of, {"optimizer": OptimizerConfig("Adam", lr=0.05)}, r"config\.optimizer\.name was 'SGD', is 'Adam'"),
        (supernet_of, {"schedule": ScheduleConfig("step")}, r"config\.schedule\.name was 'constant', is 'step'"),
        (supernet_of, {"epochs": 2}, r"config\.epochs was 1, is 2; steps was 8, is 16"),
        (supernet_of, {"data": data(72)}, r"\(steps was 8, is 9\)"),
        (supernet_of, {"accumulate": 2, "batch_size": 4}, r"config\.batch_size was 8, is 4; config\.accumulate"),
        (supernet_of, {"loss": nn.functional.multi_margin_loss}, r"loss was 'cross_entropy', is 'multi_margin_loss'"),
    ],
)
def test_the_checkpoint_of_another_run_says_what_differs(make, options, difference, tmp_path):
    trained(supernet_of(), tmp_path, max_steps=3)
    before = (tmp_path / "supernet.pt").read_bytes()
    with pytest.raises(CheckpointError, match=difference) as error:
        trained(make(), tmp_path, **options)
    assert "belongs to another run" in str(error.value)
    assert "use another directory or remove it" in str(error.value)
    assert len(str(error.value)) < 1000
    assert (tmp_path / "supernet.pt").read_bytes() == before


def test_what_changes_nothing_may_change(tmp_path):
    trained(supernet_of(), tmp_path, max_steps=3)
    trained(supernet_of(), tmp_path, num_workers=1, checkpoint_every=2, log_every=4)
    assert log_of(tmp_path)[-1]["step"] == 8


def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_its_reason(tmp_path):
    (tmp_path / "supernet.pt").mkdir()
    (tmp_path / "supernet.pt" / "in the way").write_text("")
    with pytest.raises(CheckpointError):
        train_supernet(supernet_of(), data(), config(), directory=tmp_path, quiet=True)
