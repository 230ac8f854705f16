"""Checkpoints are whole or not there, and are continued only by the run that they belong to."""

import numpy as np
import pytest
import torch
from small import Plain, Residual, built, config, data, log_of, supernet_of, trained
from torch import nn

from cafenet import checkpoint
from cafenet.assignment import LocallyFree
from cafenet.bins import uniform_bins
from cafenet.checkpoint import read_checkpoint, write_checkpoint
from cafenet.choice import Race
from cafenet.errors import CheckpointError
from cafenet.optim import OptimizerConfig, ScheduleConfig
from cafenet.train import train_supernet


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "run" / "x.pt"
    assert read_checkpoint(path, {}) is None
    write_checkpoint(path, {"identity": {"a": 1, "b": {"c": (2, 3)}}, "weights": torch.arange(3)})
    content = read_checkpoint(path, {"a": 1, "b": {"c": (2, 3)}})
    assert content["weights"].tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["x.pt"]


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
        file.write_bytes(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full_disk)
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
    with pytest.raises(CheckpointError, match=r"supernet.pt is broken: \w+"):
        read_checkpoint(path, {})


def test_a_cut_off_file(tmp_path):
    trained(supernet_of(), tmp_path, max_steps=2)
    path = tmp_path / "supernet.pt"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="is broken"):
        trained(supernet_of(), tmp_path)


def test_other_files(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of cafenet"):
        read_checkpoint(path, {})
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of cafenet"):
        read_checkpoint(path, {})
    torch.save({"format": checkpoint.FORMAT, "format_version": 99}, path)
    with pytest.raises(CheckpointError, match="must have format version 1, but has 99; remove it to begin again"):
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
        (lambda: supernet_of(pattern=LocallyFree(2)), {}, r"pattern was .*r=1.*, is .*r=2"),
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
