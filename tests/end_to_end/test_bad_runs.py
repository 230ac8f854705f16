"""Mistakes in a recipe, a model or data: one line, before any long work, and nothing lost."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.cli.main import main
from tests.helpers.tiny_run import contents, faces_folder, picture_folder, recipe_file, refused

COLOUR = ("--model.input_size=[3,12,12]", "--model.options.in_channels=3", "--model.options.num_classes=2")
SMALL = ("--data.num_train=null", "--train.batch_size=8", "--finetune.batch_size=8")


def mistake(capsys, recipe: Path, *flags: str) -> str:
    """The line that a start ends in; it leaves no run directory behind, so the corrected command needs no other one."""
    directory = recipe.parent / "run"
    line = refused(capsys, "run", recipe, "--output", directory, *flags)
    assert not directory.exists()
    return line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data.source=npz:absent"], "no absent exists"),
        (["--data.source=folder:absent"], "no train and no val; it does not exist"),
        (["--data.source=cifar10:absent"], "there is no absent"),
        (["--data.source=celeba:absent"], "absent must hold list_attr_celeba.txt (official) or attributes.csv"),
        (["--data.source=fasion"], "did you mean fashion?"),
        (["--data.options={size: 3}"], "fashion takes no options, but got size"),
        (
            ["--model.options.num_classes=7"],
            "has 7 and Fashion-MNIST subset, training set has 10 classes; give --model.options.num_classes 10",
        ),
        (
            ["--model.options.num_classes=11"],
            "one output a class, but {net} has 11 and Fashion-MNIST subset, training set",
        ),
        (["--loss=bce"], "the loss must be bce for attributes alone, but is bce for the classes"),
        (["--budget=1%"], "`budget >= smallest subnet` must hold"),
        (["--budget=50%,1%"], "raise the budget '1%'"),
        (["--budget=100%"], "a relative budget must be below 100%"),
        (["--budget=many"], "a budget must be a number with its unit, but got 'many'"),
        (["--buget=50%"], "there is no flag --buget; did you mean --budget?"),
        (["--model.options.in_channels=3"], "{net} must take inputs of shape [1, 28, 28], but"),
        (["--model.name={place}/net.py:biuld"], "net.py has no 'biuld'"),
        (["--model.name={place}/absent.py:build"], "there is no"),
        (["--model.options.width=2"], "unexpected keyword argument 'width'"),
        (["--model.freeze=[absent]"], "'absent' matches none"),
        (["--supernet.r=-1"], "supernet.r must be a whole number of at least 0, but is -1"),
        (["--supernet.beta=0"], "supernet.beta must be a number above 0, but is 0"),
        (["--train.batch_size=1000"], "must fill one step of 1 x 1000 examples, but has 130"),
        (["--finetune.batch_size=1000"], "must fill one step of 1 x 1000 examples, but has 150"),
        (["--finetune.optimizer.name=SDG"], "no optimiser 'SDG'; did you mean SGD"),
        (["--finetune.schedule.name=cosin"], "finetune.schedule.name"),
        (["--finetune.epochs=0"], "finetune.epochs must be a number above 0, but is 0"),
        (
            ["--baselines.random_widths=2", "--baselines.random_epochs=0"],
            "random_epochs must be a number above 0",
        ),
        (["--finetune.seeds=[]"], "finetune.seeds must hold at least one seed, each once, but is []"),
        (["--finetune.seeds=[1,1]"], "finetune.seeds must hold at least one seed, each once, but is [1, 1]"),
        (["--finetune.seeds=[-1]"], "finetune.seeds must be a list, each a whole number from 0 to"),
        (["--seed=-1"], "seed must be a whole number from 0 to 9223372036854775807, but is -1"),
        (["--data.split_seed=-1"], "data.split_seed must be a whole number from 0 to"),
        (["--seed=99999999999999999999"], "but is 99999999999999999999"),
        (["--algorithms=[]"], "algorithms must hold at least one of"),
        (
            ["--finetune.teacher=original", "--baselines.original=false"],
            "needs baselines.original true, but it is false",
        ),
        (["--finetune.teacher={place}/net.py:absent"], "net.py has no 'absent'"),
        (["--finetune.teacher=torchvision:resnet18"], "a teacher must come with weights, but torchvision:resnet18 has"),
        (
            ["--finetune.teacher={net}", "--finetune.teacher_options={num_classes: 7}"],
            "a teacher must have the model's outputs, [10], but {net} has [7]",
        ),
        (["--train.seed=3"], "train.seed must be left out, since seed decides, but is 3"),
        (
            ["--sampling.distill.weight=0.9", "--sampling.full_share=0"],
            "sampling.distill learns from a trained network, but fresh weights are not",
        ),
        (
            ["--sampling.random_share=0.5", "--supernet.r=0"],
            "sampling.random_share is 0.5, but with supernet.r 0 there is one candidate; raise supernet.r",
        ),
        (["--supernet.per_group=true", "--supernet.r=0"], "but with r = 0 there is one; raise r"),
        (["--finetune.seed=3"], "finetune.seed must be left out, since finetune.seeds decides"),
        (["--train.num_workers=2"], "train.num_workers must be left out, since data.num_workers decides"),
        (
            ["--finetune.label_smoothing=2"],
            "finetune.label_smoothing must be a number from 0 to below 1, but is 2",
        ),
        (
            ["--finetune.start=supernet", "--stages.num_stages=2"],
            "finetune.start supernet needs one stage, but there are 2",
        ),
        (["--baselines.random_widths=-1"], "baselines.random_widths must be a whole number of at least 0, but is -1"),
        (["--data.num_workers=-1"], "data.num_workers must be a whole number from 0 to 4096 or None, but is -1"),
        (["--algorithms=[trend,trend]"], "algorithms must hold each once, but is ['trend', 'trend']"),
        (["--data.num_train=0"], "data.num_train must be a whole number of at least 1 or None, but is 0"),
        (["--data.validation_share=1"], "data.validation_share must be a number above 0 and below 1, but is 1"),
        (["--device=nowhere"], "device must be auto, cpu or one that PyTorch can use here, but 'nowhere' is not"),
        (["--device=meta"], "but 'meta' is not: meta tensors hold no values"),
        (["--latency.device=nowhere"], "device must be one that PyTorch can run on here"),
    ],
)
def test_a_mistake_is_found_before_any_work(flags, message, recipe, capsys):
    place = str(recipe.parent)
    net = f"{place}/net.py:build"
    line = mistake(capsys, recipe, *(flag.replace("{place}", place).replace("{net}", net) for flag in flags))
    assert message.replace("{net}", net) in line


def test_several_mistakes_in_one_line(recipe, capsys):
    line = mistake(capsys, recipe, "--finetune.seeds=[]", "--algorithms=[]")
    assert line.count(", but is ") == 2
    line = mistake(capsys, recipe, "--seed=-1", "--data.num_train=-3", "--finetune.schedule.gamma=0")
    assert line.count(", but is ") == 3


def test_a_recipe_with_a_typo(tmp_path, capsys):
    recipe = recipe_file(tmp_path, supernt={"r": 1})
    assert "unknown key 'supernt'; did you mean supernet?" in mistake(capsys, recipe)


def test_classes_without_a_name(tmp_path, capsys):
    """A label that the test set has and the training set has not."""
    images, labels = np.zeros((40, 28, 28), dtype=np.uint8), np.arange(40) % 4
    for part, more in (("train", 0), ("test", 6)):
        np.savez(tmp_path / f"{part}.npz", images=images, labels=labels + more)
    recipe = recipe_file(tmp_path, data={"source": f"npz:{tmp_path}"})
    assert "labels must lie in 0 to 3" in mistake(capsys, recipe)


def test_attributes_with_a_loss_for_classes(tmp_path, capsys):
    recipe = recipe_file(
        tmp_path, data={"source": f"celeba:{faces_folder(tmp_path / 'f')}", "options": {"size": [12, 12]}}
    )
    flags = [*COLOUR[:2], "--model.options.num_classes=3", *SMALL]
    assert "the loss must be bce for attributes alone, but is cross_entropy" in mistake(capsys, recipe, *flags)
    flags[2] = "--model.options.num_classes=2"
    assert "has 2 and CelebA, training set has 3 classes; give --model.options.num_classes 3" in mistake(
        capsys, recipe, *flags, "--loss=bce"
    )


def test_an_option_that_the_data_do_not_have(tmp_path, capsys):
    recipe = recipe_file(tmp_path, data={"source": f"folder:{picture_folder(tmp_path / 'p')}", "options": {"sise": 3}})
    assert "folder data takes the options test_folder, size, " in mistake(capsys, recipe, *COLOUR, *SMALL)


def test_a_network_for_other_sizes(recipe, tmp_path, capsys):
    """It flattens 7x7 places; an input of 20x20 has 5x5."""
    (tmp_path / "flat.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Conv2d(1, 8, 4, stride=4), nn.Flatten(), "
        "nn.Linear(8 * 49, 10))\n"
    )
    flags = [f"--model.name={tmp_path}/flat.py:build", "--model.input_size=[1,20,20]"]
    line = mistake(capsys, recipe, *flags)
    assert "must take inputs of shape [1, 20, 20], but: " in line
    assert "see model.options, model.input_size and data.source" in line


def damaged(root: Path) -> Path:
    """Pictures of which one training image ends half-way."""
    picture_folder(root)
    victim = sorted((root / "train" / "a").iterdir())[3]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    return victim


def test_a_damaged_image_is_named_at_once(tmp_path, capsys):
    victim = damaged(tmp_path / "pictures")
    recipe = recipe_file(tmp_path, data={"source": f"folder:{tmp_path / 'pictures'}"})
    assert f"an image must be readable, but {victim} is not" in mistake(capsys, recipe, *COLOUR, *SMALL)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_damaged_image_that_is_read_in_training_is_named_too(num_workers, tmp_path, capsys):
    """Images that do not fit into memory are decoded when needed, perhaps by another process; what was done is kept."""
    victim = damaged(tmp_path / "pictures")
    data = {"source": f"folder:{tmp_path / 'pictures'}", "options": {"cache_limit_bytes": 0}}
    recipe = recipe_file(tmp_path, data=data | {"num_workers": num_workers, "split_seed": 1})
    line = refused(capsys, "run", recipe, "--output", tmp_path / "run", *COLOUR, *SMALL, "--baselines.fixed=false")
    assert line.startswith(f"error: an image must be readable, but {victim} is not")
    assert line.endswith("replace the file or remove it")
    shutil.copy(victim.with_name("0.png"), victim)
    arguments = ["train", str(recipe), "--output", str(tmp_path / "run"), "--quiet", *COLOUR, *SMALL]
    assert main([*arguments, "--baselines.fixed=false"]) == 0


def test_a_file_in_the_run_directorys_place(recipe, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        line = refused(capsys, "run", recipe, "--output", place)
        assert f"the run directory {place} must be writable, but: " in line
    assert (tmp_path / "file").read_text() == "mine"


def test_the_directory_of_a_search_is_none_of_a_run(recipe, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "recipe.yaml").write_text("call: cafenet.search\n")
    line = refused(capsys, "run", recipe, "--output", out)
    assert f"{out} must be a directory of `cafenet run`, but `cafenet.search` made it; give another" in line
    line = refused(capsys, "export", out, tmp_path / "a.pt")
    assert f"a run directory of `cafenet run` is needed, but {out} holds a search; call result.export(FILE)" in line
    assert [path.name for path in out.iterdir()] == ["recipe.yaml"]


def test_a_damaged_checkpoint_is_named_and_nothing_else_is_lost(finished, tmp_path, capsys):
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    checkpoint = directory / "supernet" / "supernet.pt"
    for path in (checkpoint, checkpoint.with_name("supernet.previous.pt")):
        path.write_bytes(path.read_bytes()[:5000])
    before = contents(directory, "*.pt", "*.journal", "results.json")
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", directory)
    assert f"the checkpoint {checkpoint} is broken" in line
    assert line.endswith("put a copy in its place, or remove it to train from the start")
    assert contents(directory, "*.pt", "*.journal", "results.json") == before


def test_a_damaged_checkpoint_with_one_before_it_ends_the_run_as_before(finished, tmp_path, capsys):
    """Its last steps are trained again; scores and final models are those of before, so they are not made again."""
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    checkpoint = directory / "supernet" / "supernet.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    before = contents(directory, "slim.pt", "*.journal", "evaluation.json")
    assert main(["run", str(finished.parent / "tiny.yaml"), "--output", str(directory), "--quiet"]) == 0
    assert contents(directory, "slim.pt", "*.journal", "evaluation.json") == before
    weights = [torch.load(place / "supernet/supernet.pt")["model"] for place in (finished, directory)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert "supernet.pt.damaged" in [path.name for path in checkpoint.parent.iterdir()]


def test_a_bug_shows_its_traceback(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("cafenet.runs.run_recipe.train_stage", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["run", str(recipe), "--output", str(tmp_path / "run"), "--quiet"])
    monkeypatch.setattr("cafenet.runs.run_recipe.train_stage", lambda *arguments: (tmp_path / "absent").read_text())
    with pytest.raises(FileNotFoundError):
        main(["run", str(recipe), "--output", str(tmp_path / "run"), "--quiet"])


WEIRD = """
from torch import nn

class Answer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.conv, self.head = kind, nn.Conv2d(1, 4, 3), nn.Linear(4, 10)

    def forward(self, x):
        y = self.head(self.conv(x).mean((2, 3)))
        return {"dict": lambda: {"out": y}, "tuple": lambda: (y, y), "error": lambda: {}["absent"]}[self.kind]()
"""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dict", "must return one tensor of shape (batch, classes), but returns a dict"),
        ("tuple", "but returns a tuple"),
        ("error", "must take inputs of shape [1, 28, 28], but: KeyError: 'absent'"),
    ],
)
def test_a_model_that_is_no_classifier(kind, message, tmp_path, capsys):
    (tmp_path / "weird.py").write_text(WEIRD)
    model = {"name": f"{tmp_path}/weird.py:Answer", "options": {"kind": kind}}
    assert message in mistake(capsys, recipe_file(tmp_path, model=model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{size: 16}", "size must be height and width, as [64, 48], but is 16"),
        ("{size: [16]}", "but is [16]"),
        ("{size: [16, -1]}", "but is [16, -1]"),
        ("{mean: 0.5}", "mean must have a number for each of 3 channels, but is 0.5"),
        ("{std: [1, 0, 1]}", "std must be above 0, but is [1, 0, 1]"),
        ("{cache_limit_bytes: big}", "cache_limit_bytes must be a number of bytes, 0 or more, but is 'big'"),
    ],
)
def test_options_of_data_that_cannot_be_used(options, message, recipe, tmp_path, capsys):
    source = f"--data.source=folder:{picture_folder(tmp_path / 'pictures')}"
    assert message in mistake(capsys, recipe, source, f"--data.options={options}", *COLOUR, *SMALL)
