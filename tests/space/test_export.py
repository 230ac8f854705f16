"""Exported files give the model's outputs, read back from the file itself; one that does not is not left behind."""

import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import cafenet
from cafenet.errors import CafeNetWarning, ExportError, SlimFileError
from cafenet.space import export as export_module
from cafenet.space.batch_sizes import open_batch, with_batch_size
from cafenet.space.export import export
from tests.helpers.small_training import Plain, Residual, assert_same_state, built

EXAMPLE = torch.zeros(1, 3, 4, 4)
needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnxscript")),
    reason="onnxruntime and onnxscript are not installed: pip install '.[onnx]'",
)
ENDINGS = ["pt", "pt2", pytest.param("onnx", marks=needs_onnx)]


def slim_of(kind: type[nn.Module] = Plain) -> nn.Module:
    """Channels here and there, with batch-norm statistics that are not the initial ones."""
    model = built(kind)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    space = cafenet.trace(model, EXAMPLE)
    return space.extract(channels={group.name: [0, 2, 5] for group in space.groups})


def read_back(path: Path, inputs: Tensor) -> Tensor:
    """The outputs of a file, read as its user would."""
    if path.suffix == ".pt":
        return cafenet.load(path, built()).eval()(inputs)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(inputs)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    return torch.from_numpy(output)


@pytest.fixture
def changed(monkeypatch):
    """Writers that write a model with other weights in the head."""

    def other(model: nn.Module) -> nn.Module:
        copy = export_module.copy_of(model)
        with torch.no_grad():
            copy.head.bias += 0.1
        return copy

    save, exported = export_module.save, export_module.exported
    monkeypatch.setattr(export_module, "save", lambda model, path: save(other(model), path))
    monkeypatch.setattr(export_module, "exported", lambda model, *arguments: exported(other(model), *arguments))


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_gives_the_same_outputs(ending, tmp_path):
    slim, inputs, path = slim_of(), torch.randn(1, 3, 4, 4), tmp_path / f"slim.{ending}"
    slim.train()
    difference = export(slim, EXAMPLE, path)
    assert 0 <= difference < 1e-5
    assert slim.training
    torch.testing.assert_close(read_back(path, inputs), slim.eval()(inputs), atol=1e-5, rtol=0)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_pt_file_loads_with_every_tensor(tmp_path):
    slim = slim_of()
    export(slim, EXAMPLE, tmp_path / "slim.pt")
    assert_same_state(cafenet.load(tmp_path / "slim.pt", built()), slim)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_with_other_outputs_is_refused_and_removed(ending, changed, tmp_path):
    path = tmp_path / f"slim.{ending}"
    with pytest.raises(ExportError, match=rf"must give the same outputs, but .*slim.{ending} differs by 0\.\d+ of the"):
        export(slim_of(), EXAMPLE, path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_is_kept_when_a_write_is_refused(changed, tmp_path):
    (tmp_path / "slim.pt").write_text("an older file")
    with pytest.raises(ExportError, match="same outputs"):
        export(slim_of(), EXAMPLE, tmp_path / "slim.pt")
    assert (tmp_path / "slim.pt").read_text() == "an older file"


@pytest.mark.parametrize(
    "found",
    [
        [torch.full((1, 4), torch.nan)],
        [torch.zeros(1, 3)],
        [],
        [torch.zeros(2, 4)],
    ],
    ids=["nan", "fewer classes", "nothing", "more rows"],
)
def test_outputs_that_are_none_at_all_are_refused(found, monkeypatch, tmp_path):
    monkeypatch.setitem(export_module._WRITERS, "pt2", lambda *arguments: lambda inputs: found)
    with pytest.raises(ExportError, match=r"must give the same outputs, but .* differs by"):
        export(slim_of(), EXAMPLE, tmp_path / "slim.pt2")


def test_every_output_counts():
    good, other = torch.ones(2), torch.tensor([1.0, 1.5])
    assert (
        export_module._difference([good, good], [good, other])
        == export_module._difference([good, good], [other, good])
        == 0.5
    )
    assert export_module._difference([4 * good], [4 * other]) == 0.5  # relative to the largest output
    assert export_module._difference([good, good], [good, good]) == 0
    assert math.isnan(export_module._difference([good, good], [good, torch.tensor([1.0, torch.nan])]))


def test_what_is_not_a_finite_float():
    numbers, infinite = torch.tensor([1, 2]), torch.tensor([1.0, -torch.inf])
    assert export_module._difference([numbers, numbers > 1], [numbers, numbers > 1]) == 0
    assert (
        export_module._difference([numbers], [numbers + 1])
        == export_module._difference([numbers > 1], [numbers > 0])
        == math.inf
    )
    assert export_module._difference([infinite], [infinite]) == 0
    assert (
        export_module._difference([infinite], [-infinite])
        == export_module._difference([infinite], [torch.ones(2)])
        == math.inf
    )
    assert export_module._difference([2 * infinite], [torch.tensor([1.0, -torch.inf])]) == 0.5
    assert export_module._difference([torch.ones(2), torch.ones(0, 3)], [torch.ones(2), torch.ones(0, 3)]) == 0


@dataclass
class Answer:
    scores: Tensor


class Answering(nn.Module):
    def __init__(self, answer) -> None:
        super().__init__()
        self.answer = answer
        self.one, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor):
        return self.answer(self.head(self.one(x).relu().mean((2, 3))))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "answer",
    [
        lambda scores: {"scores": scores, "is_positive": scores > 0},
        lambda scores: (scores, scores.argmax(1)),
        lambda scores: scores.masked_fill(torch.tensor([False, True, False, False]), -torch.inf),
        lambda scores: (scores, scores.new_zeros(0, 4)),
    ],
    ids=["bool", "int", "infinite", "empty"],
)
def test_outputs_of_all_kinds(answer, ending, tmp_path):
    slim = cafenet.trace(Answering(answer), EXAMPLE).extract([3])
    assert export(slim, EXAMPLE, tmp_path / f"slim.{ending}") < 1e-5


def test_outputs_in_an_object_of_the_users_class(changed, tmp_path):
    slim = cafenet.trace(Answering(Answer), EXAMPLE).extract([3])
    with pytest.raises(ExportError, match=r"differs by 0\.\d+ of the largest"):
        export(slim, EXAMPLE, tmp_path / "slim.pt")


def test_a_model_without_outputs_is_refused(tmp_path):
    slim = cafenet.trace(Answering(lambda scores: None), EXAMPLE).extract()
    with pytest.raises(ExportError, match="is compared by its outputs, but this one returns no values"):
        export(slim, EXAMPLE, tmp_path / "slim.pt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_a_forward_that_writes_into_its_input(ending, tmp_path):
    class Normalising(Answering):
        def forward(self, x: Tensor):
            return super().forward(x.sub_(0.5).div_(0.25))

    slim = cafenet.trace(Normalising(lambda scores: scores), EXAMPLE).extract([3])
    assert export(slim, EXAMPLE, tmp_path / f"slim.{ending}") < 1e-5


def test_a_difference_in_one_of_many_places_is_seen(monkeypatch, tmp_path):
    """Inputs are noise: an exported model whose middle is wrong but whose bias is right would pass on zeros."""
    slim, exported = slim_of(), export_module.exported

    def other(model: nn.Module, *arguments):
        copy = export_module.copy_of(model)
        with torch.no_grad():
            copy.one.weight *= 1.1
        return exported(copy, *arguments)

    monkeypatch.setattr(export_module, "exported", other)
    with pytest.raises(ExportError, match="same outputs"):
        export(slim, EXAMPLE, tmp_path / "slim.pt2")


def test_several_inputs_and_outputs(tmp_path):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x: Tensor, *, scale: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.one(x).relu()
            return self.two(hidden), hidden.mean((1, 2, 3)) * scale

    inputs = {"x": EXAMPLE, "scale": torch.ones(1)}
    slim = cafenet.trace(Two(), inputs).extract([3])
    for ending in ("pt", "pt2"):
        assert export(slim, inputs, tmp_path / f"slim.{ending}") < 1e-5


OPEN = [param for param in ENDINGS if param != "pt"]


@pytest.mark.parametrize("ending", OPEN)
@pytest.mark.parametrize("size", [1, 2])
def test_a_file_takes_any_batch_size(ending, size, tmp_path):
    slim, path = slim_of().eval(), tmp_path / f"slim.{ending}"
    export(slim, EXAMPLE.expand(size, -1, -1, -1), path)
    for other in (1, 2, 7):
        inputs = torch.randn(other, 3, 4, 4)
        torch.testing.assert_close(read_back(path, inputs), slim(inputs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("ending", OPEN)
def test_a_fixed_batch_size_may_be_asked_for(ending, tmp_path):
    slim, path = slim_of().eval(), tmp_path / f"slim.{ending}"
    export(slim, EXAMPLE.expand(2, -1, -1, -1), path, fixed_batch=True)
    assert read_back(path, torch.zeros(2, 3, 4, 4)).shape == (2, 4)
    with pytest.raises(Exception, match=r"(?i)guard failed|invalid dimensions"):
        read_back(path, torch.zeros(7, 3, 4, 4))


class OneImage(Answering):
    """Its code runs at other batch sizes, too, where `torch.export` would have to write down the size."""

    def forward(self, x: Tensor):
        return super().forward(x) + len([None for _ in range(len(x))])


class OnlyTwo(Answering):
    def forward(self, x: Tensor):
        assert len(x) == 2, "two images"
        return super().forward(x)


@pytest.mark.parametrize(("kind", "size"), [(OnlyTwo, 2), (OneImage, 1)])
@pytest.mark.parametrize("ending", OPEN)
def test_code_that_fixes_the_batch_size_gives_a_fixed_file_and_one_line(kind, size, ending, tmp_path):
    example, path = torch.zeros(size, 3, 4, 4), tmp_path / f"slim.{ending}"
    slim = cafenet.trace(kind(lambda scores: scores), example).extract([3])
    with pytest.warns(CafeNetWarning, match=rf"slim.{ending} takes batches of {size} only, because at {size + 2}: "):
        assert export(slim, example, path) < 1e-5
    torch.testing.assert_close(read_back(path, example), slim.eval()(example), atol=1e-5, rtol=0)


def test_every_input_of_the_batch_size_has_an_open_batch(tmp_path):
    class Two(Answering):
        def forward(self, x: Tensor, ids: Tensor, *, scale: Tensor) -> Tensor:
            return super().forward(x) * scale[:, None] + ids[:, None]

    example = ((torch.zeros(2, 3, 4, 4), torch.tensor([3, 4])), {"scale": torch.ones(2)})
    model = Two(lambda scores: scores).eval()
    wide = with_batch_size(example, 5)
    assert [tensor.shape[0] for tensor in (*wide[0], wide[1]["scale"])] == [5, 5, 5]
    assert wide[0][1].tolist() == [3, 4, 3, 4, 3]
    program = torch.export.export(model, *wide, dynamic_shapes=open_batch(model, wide)).module()
    for inputs in (example, with_batch_size(example, 3)):
        torch.testing.assert_close(program(*inputs[0], **inputs[1]), model(*inputs[0], **inputs[1]))


def test_the_format_may_be_said_instead_of_the_ending(tmp_path):
    export(slim_of(Residual), EXAMPLE, tmp_path / "model.bin", "pt")
    assert torch.load(tmp_path / "model.bin", weights_only=True)["format"] == "cafenet-slim"


@pytest.mark.parametrize(("name", "kind"), [("slim.h5", "'h5'"), ("slim", "''"), ("pt", "''")])
def test_an_unknown_ending(name, kind, tmp_path):
    with pytest.raises(
        ExportError,
        match=f"must be one of pt, pt2, onnx, openvino, executorch, but got {kind}; use --f",
    ):
        export(slim_of(), EXAMPLE, tmp_path / name)


def test_a_missing_directory(tmp_path):
    with pytest.raises(ExportError, match=r"the directory of .*absent/slim.pt must exist, but does not"):
        export(slim_of(), EXAMPLE, tmp_path / "absent" / "slim.pt")


@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_a_directory_in_the_files_place(ending, tmp_path):
    (tmp_path / f"slim.{ending}").mkdir()
    with pytest.raises(ExportError, match="cannot be written"):
        export(slim_of(), EXAMPLE, tmp_path / f"slim.{ending}")
    assert [each.name for each in tmp_path.iterdir()] == [f"slim.{ending}"]


def test_an_ordinary_model_has_no_pt_file(tmp_path):
    with pytest.raises(SlimFileError, match="without its record"):
        export(built(), EXAMPLE, tmp_path / "model.pt")
    assert export(built(), EXAMPLE, tmp_path / "model.pt2") < 1e-5


def test_a_forward_that_export_cannot_follow(tmp_path):
    class Dynamic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x)) if float(x.sum()) > 100 else self.two(self.one(x).relu())

    with pytest.raises(ExportError, match=r"torch.export cannot follow this model's forward: .*; use a .pt file"):
        export(Dynamic(), torch.zeros(1, 3), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_onnx_says_what_it_cannot_run(tmp_path):
    slim = slim_of().bfloat16()
    with pytest.raises(ExportError, match=r"ONNX cannot hold or run this model: .*; use a .pt2 file"):
        export(slim, EXAMPLE.bfloat16(), tmp_path / "slim.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["onnxruntime", "onnxscript"])
def test_onnx_says_what_is_missing(missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, {"onnxruntime": "onnxscript", "onnxscript": "onnxruntime"}[missing], object())
    with pytest.raises(ExportError, match=rf"ONNX needs {missing}, .* pip install -c constraints.txt '\.\[onnx\]'"):
        export(slim_of(), EXAMPLE, tmp_path / "slim.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch):
    """Said before anything is written, since torch gives another reason for each format."""
    monkeypatch.setattr(export_module.os, "access", lambda path, mode: False)
    with pytest.raises(ExportError, match="must be writable, but is not"):
        export(built().eval(), EXAMPLE, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
