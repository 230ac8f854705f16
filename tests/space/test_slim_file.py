"""Slim models in files: what comes back is bit-identical, and every bad file ends in one clear error."""

import re
import zipfile
from pathlib import Path
from typing import IO

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import SlimFileError
from cafenet.space import slim_file
from tests.helpers.networks import TWO_IMAGES, pooled


class Net(nn.Module):
    def __init__(self, num_classes: int = 5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.mix = nn.Linear(8, 10)
        self.last = nn.LayerNorm(10)
        self.head = nn.Linear(10, num_classes)

    def forward(self, x):
        return self.head(self.last(self.mix(pooled(self.depthwise(self.norm(self.conv(x)))))).relu())


WIDTHS = {"conv": 5, "mix": 7}


@pytest.fixture
def slim() -> nn.Module:
    """A slim model after a step of training, so that its weights are its own."""
    slim = cafenet.trace(Net(), TWO_IMAGES).extract(WIDTHS)
    optimizer = torch.optim.SGD(slim.parameters(), lr=0.1)
    slim(torch.rand(4, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    return slim.eval()


@pytest.fixture
def path(slim: nn.Module, tmp_path: Path) -> Path:
    cafenet.save(slim, tmp_path / "slim.pt")
    return tmp_path / "slim.pt"


def test_round_trip(slim: nn.Module, path: Path):
    full = Net().eval()
    before = {name: tensor.clone() for name, tensor in full.state_dict().items()}
    loaded = cafenet.load(path, full)
    assert type(loaded) is Net
    assert loaded is not full
    x = torch.rand(3, 3, 8, 8)
    assert loaded(x).equal(slim(x))
    for name, tensor in slim.state_dict().items():
        assert loaded.state_dict()[name].equal(tensor)
    assert (loaded.depthwise.groups, loaded.last.normalized_shape, loaded.mix.in_features) == (5, (7,), 5)
    assert full.conv.out_channels == 8
    for name, tensor in full.state_dict().items():
        assert tensor.equal(before[name])
    assert loaded.norm.running_mean.abs().sum() > 0


def test_loaded_model_trains_and_saves_again(slim: nn.Module, path: Path):
    loaded = cafenet.load(str(path), Net()).train()
    loaded(torch.rand(4, 3, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())
    cafenet.save(loaded, path)
    x = torch.rand(3, 3, 8, 8)
    assert cafenet.load(path, Net()).eval()(x).equal(loaded.eval()(x))


def test_file_loads_without_running_code(path: Path):
    content = torch.load(path, weights_only=True)
    assert (content["format"], content["format_version"], content["model_class"]) == ("cafenet-slim", 2, "Net")
    assert content["widths"] == WIDTHS
    assert content["channels"] == {"conv": [0, 1, 2, 3, 4], "mix": [0, 1, 2, 3, 4, 5, 6]}
    assert content["versions"]["torch"] == torch.__version__
    assert content["versions"]["cafenet"] == cafenet.__version__


def test_explicit_channels_and_number_types(tmp_path: Path):
    space = cafenet.trace(Net().double(), TWO_IMAGES.double())
    slim = space.extract(channels={"conv": [7, 1]}).eval()
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", Net()).eval()
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    assert loaded(x).equal(slim(x))
    assert torch.load(tmp_path / "slim.pt", weights_only=True)["channels"]["conv"] == [1, 7]


def test_tied_weights_stay_tied(tmp_path: Path):
    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 5))
        model[3].weight = model[1].weight
        return model

    slim = cafenet.trace(tied(), torch.zeros(2, 4)).extract({"0": 3})
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", tied())
    assert loaded[3].weight is loaded[1].weight
    x = torch.rand(2, 4)
    assert loaded(x).equal(slim(x))


def test_a_graph_module_after_training(tmp_path: Path):
    """Its own deepcopy, on which training works, takes over only what its graph names."""
    slim = cafenet.trace(torch.fx.symbolic_trace(Net()), TWO_IMAGES).extract(WIDTHS)
    examples = [(torch.rand(3, 8, 8), n % 5) for n in range(4)]
    trained = cafenet.train_model(slim, TWO_IMAGES, examples, cafenet.TrainConfig(epochs=1, batch_size=4), quiet=True)
    cafenet.save(trained, tmp_path / "slim.pt")
    x = torch.rand(3, 3, 8, 8)
    assert cafenet.load(tmp_path / "slim.pt", torch.fx.symbolic_trace(Net())).eval()(x).equal(trained.eval()(x))


def test_wrappers_are_taken_off(slim: nn.Module, tmp_path: Path):
    cafenet.save(nn.DataParallel(slim), tmp_path / "slim.pt")
    x = torch.rand(3, 3, 8, 8)
    assert cafenet.load(tmp_path / "slim.pt", nn.DataParallel(Net())).eval()(x).equal(slim(x))


def test_only_slim_models_are_saved(tmp_path: Path):
    with pytest.raises(SlimFileError, match=r"takes a slim model .* but got a Net without its record"):
        cafenet.save(Net(), tmp_path / "slim.pt")
    assert list(tmp_path.iterdir()) == []


def fused(slim: nn.Module) -> None:
    slim.conv = nn.utils.fusion.fuse_conv_bn_eval(slim.conv, slim.norm)
    slim.norm = nn.Identity()


def reparametrised(slim: nn.Module) -> None:
    nn.utils.parametrizations.weight_norm(slim.head)


def extended(slim: nn.Module) -> None:
    slim.register_buffer("mean", torch.zeros(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (fused, "in this Net norm.bias is gone, norm.num_batches_tracked is gone, "),
        (reparametrised, "in this Net head.weight is gone, head.parametrizations.weight.original0 is new"),
        (extended, "in this Net mean is new; save before layers are fused"),
    ],
)
def test_what_load_could_not_read_is_not_saved(change, message: str, slim: nn.Module, tmp_path: Path):
    change(slim)
    with pytest.raises(SlimFileError, match=message):
        cafenet.save(slim, tmp_path / "slim.pt")
    assert list(tmp_path.iterdir()) == []


def test_file_without_a_tensor(path: Path):
    content = torch.load(path, weights_only=True)
    del content["tensors"]["norm.bias"]
    torch.save(content, path)
    with pytest.raises(SlimFileError, match=r"slim.pt cannot be loaded: .* it lacks norm.bias"):
        cafenet.load(path, Net())


class Gridded(nn.Module):
    """Makes a table on first use, for the size of its input, and one for its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 5)
        self.register_buffer("grid", None, persistent=False)
        self.register_buffer("scale", torch.rand(8, 1, 1), persistent=False)

    def forward(self, x):
        if self.grid is None or self.grid.shape[0] != x.shape[-1]:
            self.grid = torch.linspace(0, 1, x.shape[-1], device=x.device, dtype=x.dtype)
        return self.head(pooled(self.conv(x) * self.grid * self.scale))


@pytest.mark.parametrize("size_before", [None, 8, 4], ids=["never run", "same size", "other size"])
@pytest.mark.parametrize("size_after", [None, 8, 4], ids=["never run", "same size", "other size"])
def test_table_made_on_first_use(size_before: int | None, size_after: int | None, tmp_path: Path):
    """Whether the traced model and the one that is passed to `load` have run before does not matter."""
    model, other = Gridded(), Gridded()
    for each, size in ((model, size_before), (other, size_after)):
        if size:
            each(torch.rand(1, 3, size, size))
    slim = cafenet.trace(model, TWO_IMAGES).extract({"conv": 3})
    x = torch.rand(2, 3, 8, 8)
    slim(x)
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", other)
    assert loaded.scale.shape == (3, 1, 1)
    assert loaded(x).equal(slim(x))
    assert cafenet.export(slim, x, tmp_path / "exported.pt") < 1e-5


def test_another_model(path: Path):
    with pytest.raises(SlimFileError, match=r"head.weight must have shape \[5, 10\], but has \[7, 10\]"):
        cafenet.load(path, Net(num_classes=7))
    with pytest.raises(SlimFileError, match=r"slim Net that was cut from another model than this Linear"):
        cafenet.load(path, nn.Linear(3, 3))
    wider = Net()
    wider.extra = nn.Linear(2, 2)
    with pytest.raises(SlimFileError, match=r"the file has no extra\."):
        cafenet.load(path, wider)


def test_a_model_that_has_not_run_yet(path: Path):
    line = (
        rf"the model must have run once before {re.escape(str(path))} is read into it, but its 0.weight has no size yet"
    )
    with pytest.raises(SlimFileError, match=line):
        cafenet.load(path, nn.Sequential(nn.LazyLinear(3)))


def test_slim_model_instead_of_the_full_one(slim: nn.Module, path: Path):
    with pytest.raises(SlimFileError, match="pass the full-size model that was traced"):
        cafenet.load(path, slim)


def test_missing_file(tmp_path: Path):
    with pytest.raises(SlimFileError, match=r"absent.pt is not a file"):
        cafenet.load(tmp_path / "absent.pt", Net())
    with pytest.raises(SlimFileError, match="is not a file"):
        cafenet.load(tmp_path, Net())


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_truncated_file(path: Path, share: float):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SlimFileError, match=r"slim.pt is broken or not a file of torch.save: \S"):
        cafenet.load(path, Net())


def test_damaged_file(path: Path):
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 200] = bytes(200)
    path.write_bytes(bytes(damaged))
    with pytest.raises(SlimFileError, match="is broken"):
        cafenet.load(path, Net())


@pytest.mark.parametrize("content", [[1, 2], {"format": "other"}, {"weight": torch.zeros(3)}, torch.zeros(3)], ids=str)
def test_file_of_another_format(tmp_path: Path, content: object):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(SlimFileError, match=r"is not a slim model of cafenet.save"):
        cafenet.load(tmp_path / "other.pt", Net())


def test_pickled_module_is_not_run(tmp_path: Path):
    torch.save(Net(), tmp_path / "module.pt")
    with pytest.raises(SlimFileError, match="is broken or not a file"):
        cafenet.load(tmp_path / "module.pt", Net())


def test_text_file(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("half of the FLOPs")
    with pytest.raises(SlimFileError, match="is broken or not a file"):
        cafenet.load(tmp_path / "notes.txt", Net())


def test_newer_format(path: Path):
    content = torch.load(path, weights_only=True)
    torch.save(content | {"format_version": 99}, path)
    with pytest.raises(SlimFileError, match="has format version 99, this cafenet reads 2; upgrade"):
        cafenet.load(path, Net())


def test_older_format(path: Path):
    content = torch.load(path, weights_only=True)
    torch.save(content | {"format_version": 1}, path)
    with pytest.raises(SlimFileError, match="has format version 1, this cafenet reads 2; save the model again"):
        cafenet.load(path, Net())


def signed(content: dict) -> dict:
    """With a checksum that fits, as whoever forges a file would write it."""
    return content | {"checksum": slim_file._checksum(content)}


def forged(key: str, value: object):
    return lambda content: content.__setitem__(key, value)


def of_tensors(name: str, change):
    return lambda content: content["tensors"].__setitem__(name, change(content["tensors"].get(name)))


def with_attribute(*slot: object):
    return lambda content: content["attributes"].append([*slot, -1, []])


ALL = [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (
            of_tensors("conv.weight", lambda t: t[:4]),
            r"conv.weight must have shape \[5, 3, 3, 3\] .* \[4, 3",
        ),
        (
            of_tensors("norm.bias", lambda t: t[None]),
            r"norm.bias must have shape \[5\] .* but has \[1, 5\]",
        ),
        (of_tensors("head.weight", lambda t: t.long()), r"head.weight must hold numbers as .* but is torch.int64"),
        (
            of_tensors("head.weight", lambda t: t[:1, :1].clone().expand(5, 7)),
            "head.weight must hold a number",
        ),
        (of_tensors("hooks", lambda t: torch.zeros(3)), "it holds tensors that the model has not: hooks"),
        (of_tensors("head.bias", lambda t: [1.0] * 5), "tensors must be a dict of tensors"),
        (forged("tensors", [1]), "tensors must be a dict of tensors"),
        (forged("widths", {"conv": 4, "mix": 7}), "but 'conv' has width 4 and 5 channels"),
        (forged("widths", {"conv": 5, "mix": 7, "head": 1}), "but 'head' has width 1 and None channels"),
        (forged("widths", [5, 7]), "widths must be a dict"),
        (forged("channels", {"conv": [0, 1, 2, 3, 99999], "mix": ALL}), "from 0 to 7, but are"),
        (forged("channels", {"conv": [-1, 0, 1, 2, 3], "mix": ALL}), "from 0 to 7, but are"),
        (forged("channels", {"conv": [0, 1, 1, 2, 3], "mix": ALL}), "rising numbers"),
        (forged("channels", {"conv": [0, 1], "mix": "all"}), "channels of 'mix' must be a list of whole numbers"),
        (forged("channels", {"conv": [0, 1]}), "must be of the same groups"),
        (forged("channels", None), "channels must be a dict"),
        (with_attribute("", "forward", 0, 1, 1, False), r"attributes must be sizes .* but forward is none"),
        (with_attribute("conv", "__class__", 0, 1, 1, False), r"but conv.__class__ is none"),
        (with_attribute("conv", "padding_mode", 0, 1, 1, False), r"but conv.padding_mode is none"),
        (with_attribute("conv", "kernel_size", 0, 1, 1, True), r"but conv.kernel_size is none"),
        (with_attribute("conv", "training", 0, 1, 8, False), r"but conv.training is none"),
        (with_attribute("absent", "out_channels", 0, 1, 1, False), r"but absent.out_channels is none"),
        (with_attribute("conv", "out_channels", 99, 1, 1, False), r"but conv.out_channels is none"),
        (with_attribute("conv", "out_channels", 0, 1, 0, False), "how it follows widths"),
        (with_attribute("conv"), "how it follows widths"),
        (forged("attributes", {"conv": 3}), "attributes must be a list"),
        (forged("axes", {"conv.weight": {7: 0}}), "axes must name dimensions of the model's tensors"),
        (forged("axes", {"absent": {0: 0}}), "axes must name dimensions of the model's tensors"),
        (forged("axes", {"conv.weight": {1: 0}}), "axes must name dimensions of the model's tensors"),
        (forged("axes", 3), "axes must be a dict"),
        (forged("patterns", [torch.tensor([10**6])]), "patterns must hold units up to"),
        (forged("patterns", [torch.zeros(1, dtype=torch.int64).expand(10**12)]), "a pattern must be whole numbers"),
        (forged("patterns", [[0, 1]]), "a pattern must be whole numbers"),
        (forged("units_of_channels", {"conv": torch.zeros(0, dtype=torch.int64)}), "units of 'conv' must be whole"),
        (forged("units_of_channels", {"conv": torch.tensor([10**12])}), "at most as many units as channels"),
        (forged("full_shapes", [3]), "full_shapes must be a dict of shapes"),
    ],
)
def test_forged_file(forge, message: str, path: Path):
    """Whatever contradicts the model or the rest of the file is refused, and nothing of it is set."""
    content = torch.load(path, weights_only=True)
    forge(content)
    is_hollow = any(each.numel() > 10**9 for each in content["patterns"] if isinstance(each, torch.Tensor))
    torch.save(content if is_hollow else signed(content), path)
    model = Net()
    with pytest.raises(SlimFileError, match=message):
        cafenet.load(path, model)
    assert (model.conv.out_channels, type(model.forward).__name__) == (8, "method")


def test_flipped_bytes(path: Path):
    """One bit in any place: the file loads as it was saved, because the bit was padding, or is refused."""
    whole = path.read_bytes()
    expected = cafenet.load(path, Net()).state_dict()
    outcomes = {"refused": 0, "equal": 0}
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        try:
            found = cafenet.load(path, Net()).state_dict()
        except SlimFileError:
            outcomes["refused"] += 1
        else:
            assert all(tensor.equal(expected[name]) for name, tensor in found.items())
            outcomes["equal"] += 1
    assert outcomes["refused"] > 20


def test_flipped_bit_of_a_weight(path: Path):
    content = torch.load(path, weights_only=True)
    content["tensors"]["head.bias"].view(torch.int32)[2] ^= 1
    torch.save(content, path)
    with pytest.raises(SlimFileError, match="its content must have the checksum that was saved with it"):
        cafenet.load(path, Net())


def test_compressed_file(path: Path, tmp_path: Path):
    """What is compressed may unfold to any size; torch.save compresses nothing."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(SlimFileError, match=r"packed.pt is broken or not a file of torch.save: .* compressed"):
        cafenet.load(tmp_path / "packed.pt", Net())


def test_a_model_with_another_head_is_not_saved(slim: nn.Module, tmp_path: Path):
    slim.head = nn.Linear(7, 3)
    with pytest.raises(SlimFileError, match=r"head.weight has \[3, 7\] instead of \[5, 7\]"):
        cafenet.save(slim, tmp_path / "slim.pt")


@pytest.mark.parametrize("key", ["format_version", "attributes", "full_shapes", "tensors", "checksum"])
def test_incomplete_file(path: Path, key: str):
    content = torch.load(path, weights_only=True)
    del content[key]
    torch.save(content, path)
    with pytest.raises(SlimFileError, match=f"is not complete: it lacks {key}"):
        cafenet.load(path, Net())


def test_write_to_a_missing_directory(slim: nn.Module, tmp_path: Path):
    with pytest.raises(SlimFileError, match=r"slim.pt cannot be written: .*does not exist"):
        cafenet.save(slim, tmp_path / "absent" / "slim.pt")
    assert list(tmp_path.iterdir()) == []


def test_write_over_a_directory(slim: nn.Module, tmp_path: Path):
    (tmp_path / "slim.pt").mkdir()
    with pytest.raises(SlimFileError, match="cannot be written"):
        cafenet.save(slim, tmp_path / "slim.pt")
    assert list(tmp_path.iterdir()) == [tmp_path / "slim.pt"]


def test_failed_write_leaves_the_old_file(slim: nn.Module, path: Path, monkeypatch: pytest.MonkeyPatch):
    """The disk runs full in the middle of the new file."""
    before = path.read_bytes()

    def full_disk(content: object, target: IO[bytes]) -> None:
        target.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(SlimFileError, match=r"cannot be written: .*No space left on device"):
        cafenet.save(slim, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
