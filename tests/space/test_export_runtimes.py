"""Files for OpenVINO and ExecuTorch, and int8 files of three formats: read back, run and compared."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cafenet
from cafenet.errors import ExportError
from cafenet.runtimes.file_model import FileModel
from cafenet.space.calibration import calibration_inputs
from cafenet.space.export import export

PACKAGES = {"onnx": "onnxscript", "openvino": "nncf", "executorch": "executorch"}
ENDINGS = {"onnx": "onnx", "openvino": "xml", "executorch": "pte"}
EXAMPLE = torch.zeros(1, 3, 16, 16)


def formats(*names):
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(PACKAGES[name]) is None,
                reason=f"{PACKAGES[name]} is not installed: pip install 'cafenet[{name}]'",
            ),
        )
        for name in names
    ]


@pytest.fixture(scope="module")
def images() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(48, 3, 16, 16, generator=generator), torch.arange(48) % 4)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)).eval()


@pytest.mark.parametrize("name", formats("openvino", "executorch"))
def test_a_file_gives_the_outputs_of_the_model(name, model, images, tmp_path):
    path = tmp_path / f"slim.{ENDINGS[name]}"
    assert export(model, EXAMPLE, path) < 1e-4
    names = {"slim.xml", "slim.bin"} if name == "openvino" else {"slim.pte"}
    assert {each.name for each in tmp_path.iterdir()} == names
    read = FileModel(path, batch_size=None if name == "openvino" else 1)
    with torch.no_grad():
        torch.testing.assert_close(read(images[:5][0]), model(images[:5][0]), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", formats("onnx", "openvino", "executorch"))
def test_an_int8_file_is_nearly_the_model(name, model, images, tmp_path):
    exact, path = tmp_path / f"float.{ENDINGS[name]}", tmp_path / f"int8.{ENDINGS[name]}"
    export(model, EXAMPLE, exact)
    difference = export(model, EXAMPLE, path, quantize="int8", calibration=images)
    assert 0 < difference < 0.1
    read = FileModel(path, batch_size=1)
    with torch.no_grad():
        whole, found = model(images[:8][0]), read(images[:8][0])
    assert 0 < (found - whole).abs().max() < 0.1 * whole.abs().max()
    assert cafenet.evaluate(read, images)["num_examples"] == 48
    if name == "openvino":
        path, exact = path.with_suffix(".bin"), exact.with_suffix(".bin")
        assert path.stat().st_size < 0.4 * exact.stat().st_size


def test_calibration_data_come_in_batches_of_the_file(images):
    inputs = ((torch.zeros(2, 3, 16, 16),), {})
    for data in (images, DataLoader(images, 7), [images[:48]], [images[:48][0]]):
        found = calibration_inputs(data, inputs)
        assert {args[0].shape for args, _ in found} == {(2, 3, 16, 16)}
        assert torch.equal(found[0][0][0], images[:2][0])
        assert len(found) in (21, 24)  # six batches of 7 leave one example each: 6 * 3 + 3
    (first, *_) = calibration_inputs([{"x": images[:4][0], "labels": images[:4][1]}], ((), {"x": images[:2][0]}))
    assert list(first[1]) == ["x"]
    many = TensorDataset(torch.zeros(1000, 1))
    assert len(calibration_inputs([many[:][0]], ((torch.zeros(8, 1),), {}))) == 16


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("a.onnx", {"quantize": "int8"}, "needs calibration=, some training data"),
        ("a.onnx", {"quantize": "int4"}, "quantize must be 'int8' or None, but is 'int4'"),
        ("a.pt2", {"quantize": "int8"}, "needs a format of onnx, openvino, executorch, but the format is pt2"),
        ("a.onnx", {"quantize": "int8", "calibration": []}, "at least one batch of 1 examples, but holds none"),
        ("a.onnx", {"quantize": "int8", "calibration": [3]}, "must give pairs .*, but gives int"),
        ("a.vino", {"kind": "openvino"}, "a file of OpenVINO must end in .xml"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(file, options, message, model, tmp_path):
    with pytest.raises(ExportError, match=message):
        export(model, EXAMPLE, tmp_path / file, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_no_model(tmp_path):
    with pytest.raises(ExportError, match=r"must have one of the endings .pt2, .onnx, .xml, .pte, but is .*weights.h5"):
        FileModel(tmp_path / "weights.h5")


def test_parts_of_a_batch_are_put_together(tmp_path, images):
    linear = nn.Linear(3, 2)
    export(linear, torch.zeros(4, 3), tmp_path / "model.pt2", fixed_batch=True)
    inputs = torch.randn(10, 3)
    found = FileModel(Path(tmp_path / "model.pt2"), batch_size=4)(inputs)
    torch.testing.assert_close(found, linear(inputs))
