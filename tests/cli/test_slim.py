"""`cafenet slim`: a trained model in, a slim one out; mistakes are one line before long work."""

from pathlib import Path

import numpy as np
import pytest
import torch

import cafenet
from cafenet.cli.main import main
from tests.helpers.small_training import batch, built, config, data

NET = "from tests.helpers.small_training import Plain as Net\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Path:
    """A directory with a network, its trained weights and data."""
    (tmp_path / "net.py").write_text(NET)
    model = cafenet.train_model(built(), torch.zeros(1, 3, 4, 4), data(128, 1), config(epochs=2), quiet=True)
    torch.save(model.state_dict(), tmp_path / "net.pt")
    (tmp_path / "data").mkdir()
    for name, size, seed in (("train", 400, 1), ("test", 80, 2)):
        images, labels = batch(size, seed)
        pixels = (128 + 40 * images).clamp(0, 255).permute(0, 2, 3, 1).numpy().astype(np.uint8)
        np.savez(tmp_path / "data" / f"{name}.npz", images=pixels, labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def more_classes() -> None:
    """The same data with two more classes."""
    Path("more").mkdir()
    for name in ("train", "test"):
        kept = np.load(f"data/{name}.npz")
        labels = np.concatenate([np.repeat([4, 5], 20), kept["labels"][40:]])
        np.savez(f"more/{name}.npz", images=kept["images"], labels=labels)


def slim(*flags: str) -> int:
    given = ["--weights", "net.pt", "--data", "npz:data", "--effort", "quick", "--batch-size", "40", "--quiet"]
    return main(["slim", "./net.py:Net", *given, "--output", "out", *flags])


def test_the_slim_model_is_saved_and_the_gain_is_printed(place, capsys):
    assert slim("--budget", "60%") == 0
    said = capsys.readouterr().out
    assert "of the computation" in said
    is_uniform = "The slim model has Uniform's widths" in said
    names = ["before", "widths", "after"] if is_uniform else ["before", "after", "Uniform"]
    assert [line.split()[0] for line in said.splitlines()[3:6]] == names
    loaded = cafenet.load(place / "out" / "slim.pt", built())
    space = cafenet.trace(built(), torch.zeros(1, 3, 4, 4))
    assert cafenet.trace(loaded, torch.zeros(1, 3, 4, 4)).flops() <= 0.6 * space.flops()
    assert (place / "out" / "report.html").exists()
    assert (place / "out" / "searched.pt").exists() == is_uniform


def test_the_teacher_of_the_command_line(place, capsys, monkeypatch):
    given = {}

    def found(*args, **options):
        given.update(options)
        raise cafenet.CafeNetError("far enough")

    monkeypatch.setattr("cafenet.pipeline.search.search", found)
    for flags, is_taught in (([], False), (["--distill"], True)):
        assert slim("--budget", "60%", *flags) == 2
        assert given["distill"] is is_taught


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--weights", "absent.pt"], "--weights must be a file with a state dict, but absent.pt is not there"),
        (["--weights", "net.py"], "--weights must be a state dict, but net.py cannot be read"),
        (["--weights", "other.pt"], "1 keys too few: one.weight; 1 keys too many: first.weight"),
        (["--weights", "wide.pt"], "of other sizes: head.bias ([9] in place of [4]); see MODEL and --num-classes"),
        (["--budget", "1%"], "smallest subnet"),
        (["--budget", "50%,25%"], "slim takes one budget"),
        (["--data", "npz:absent"], "absent"),
        (["--batch-size", "0"], "batch_size must be"),
        (["--data", "npz:more"], "one output a class, but ./net.py:Net has 4 and npz:more has 6 classes; give --num-"),
        (["--num-classes", "6"], "unexpected keyword argument 'num_classes'"),
        (["--weights", "numbers.pt"], "1 keys that are no plain tensors: one.weight"),
        (["--weights", "statistics.pt"], "the outputs of the model must be numbers"),
    ],
)
def test_mistakes_are_one_line_before_long_work(flags, words, place, capsys, monkeypatch):
    state = torch.load("net.pt", weights_only=True)
    torch.save({"first.weight" if name == "one.weight" else name: value for name, value in state.items()}, "other.pt")
    torch.save({**state, "head.bias": torch.zeros(9)}, "wide.pt")
    torch.save({**state, "one.weight": 3}, "numbers.pt")
    torch.save({**state, "norm_one.running_var": -state["norm_one.running_var"]}, "statistics.pt")
    more_classes()
    monkeypatch.setattr("cafenet.pipeline.one_stage.train_supernet", None)  # nothing may be trained
    assert slim(*flags) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_model_that_has_not_run_yet_is_refused(place, capsys):
    """The look at its outputs must not run it either: weights of a size that chance gave would be trained."""
    (place / "net.py").write_text(
        "from torch import nn\n\ndef Net():\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))"
    )
    given = ["--data", "npz:data", "--effort", "quick", "--batch-size", "40", "--quiet", "--budget", "60%"]
    assert main(["slim", "./net.py:Net", *given, "--output", "out"]) == 2
    assert "1.weight has no size yet; call the model once" in capsys.readouterr().err


def test_a_librarys_model_has_as_many_outputs_as_there_are_classes(place, capsys, monkeypatch):
    """A library's 10 outputs are nobody's choice here; those of --num-classes are."""
    flags = ["--data", "npz:data", "--quiet", "--output", "out", "--effort", "quick", "--budget", "0.1%"]
    model = ["cafenet:plain_cnn", *flags]
    monkeypatch.setattr("cafenet.pipeline.one_stage.train_supernet", None)  # nothing may be trained
    grey = {name: dict(np.load(f"data/{name}.npz")) for name in ("train", "test")}
    for name, content in grey.items():
        np.savez(f"data/{name}.npz", images=content["images"][..., :1], labels=content["labels"])
    assert main(["slim", *model]) == 2
    words = "one output a class, but cafenet:plain_cnn has 10 and npz:data has 4 classes; give --num-classes 4"
    assert words in capsys.readouterr().err
    for chosen in ("4", "10"):
        assert main(["slim", *model, "--num-classes", chosen]) == 2
        assert "smallest subnet" in capsys.readouterr().err  # the next mistake


def test_the_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["slim", "--help"])
    assert "cafenet slim net.py:Net --weights net.pt --data folder:images --budget 50%" in capsys.readouterr().out


def test_images_that_are_enlarged_are_told_with_the_flag_that_leaves_them(place, capsys, monkeypatch):
    monkeypatch.setattr("cafenet.models.published_input_size", lambda name: (3, 8, 8))
    monkeypatch.setattr("cafenet.pipeline.search.search", lambda *_, **__: [][0])
    words = ["slim", "./net.py:Net", "--weights", "net.pt", "--data", "npz:data", "--output", "out"]
    with pytest.raises(IndexError):
        main(words)
    said = capsys.readouterr().err
    assert (
        "Images of 4x4 are scaled to 8x8, which is 4 times the work; --image-size 4,4 leaves them as they are." in said
    )
    with pytest.raises(IndexError):
        main([*words, "--image-size", "4,4"])
    assert "scaled" not in capsys.readouterr().err
