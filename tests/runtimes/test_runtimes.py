"""Every runtime gives the model's outputs, says which operator it lacks, and is named before long work if missing."""

import importlib.util
import warnings

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import CafeNetError, DeploymentError, ExportError
from cafenet.runtimes.choose import RUNTIMES, made_with, prepared
from cafenet.runtimes.file_formats import FILE_FORMATS, format_of_ending
from cafenet.runtimes.program import exported
from cafenet.runtimes.session import outputs_of
from cafenet.searching.latency.measure import LatencyConfig, check_runtime, measure_latency

PACKAGES = {"onnxruntime": "onnxscript", "openvino": "openvino", "executorch": "executorch"}
MISSING = {name: importlib.util.find_spec(module) is None for name, module in PACKAGES.items()}
INPUTS = ((torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),), {})


def when_installed(name: str):
    mark = pytest.mark.skipif(MISSING.get(name, False), reason=f"{name} is not installed: pip install 'cafenet[...]'")
    return pytest.param(name, marks=mark)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    ).eval()


class Sorted(nn.Module):
    """An operator that ExecuTorch, OpenVINO and ONNX lack."""

    def forward(self, x):
        return torch.linalg.eigvals(x[..., :3, :3]).real + 0 * x[..., :1, :3]


@pytest.mark.parametrize("name", [when_installed(name) for name in RUNTIMES if name != "torch.compile"])
def test_a_session_gives_the_outputs_of_the_model(name):
    model = net()
    with prepared(name, model, INPUTS, num_threads=1, device=torch.device("cpu")) as session, torch.no_grad():
        (found,) = outputs_of(session, INPUTS)
        rounding = 1e-2 if name == "openvino" else 1e-4  # OpenVINO computes in bf16 where the CPU has it
        torch.testing.assert_close(found, model(*INPUTS[0]), atol=rounding, rtol=rounding)
        assert measure_latency(model, INPUTS[0], LatencyConfig(runtime=name, repeats=2)) > 0


@pytest.mark.skipif(MISSING["onnxruntime"], reason="onnxscript is not installed: pip install 'cafenet[onnx]'")
def test_what_torch_warns_of_its_own_code_is_not_shown(tmp_path):
    """Every measurement of a latency budget writes a file, and each would warn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cafenet.export(net(), *INPUTS[0], tmp_path / "net.onnx")
    assert not [each for each in caught if "LeafSpec" in str(each.message)]


@pytest.mark.slow
def test_a_compiled_model_is_measured():
    assert measure_latency(net(), INPUTS[0], LatencyConfig(runtime="torch.compile", repeats=2)) > 0


@pytest.mark.parametrize("name", [when_installed(name) for name in ("onnxruntime", "openvino", "executorch")])
def test_an_operator_that_a_runtime_lacks_is_one_line(name):
    with pytest.raises(ExportError) as caught:
        check_runtime(Sorted(), INPUTS[0], LatencyConfig(runtime=name))
    assert "cannot hold" in str(caught.value) or "cannot run" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("onnxruntime", "onnxruntime", "onnx"),
        ("openvino", "openvino", "openvino"),
        ("executorch", "executorch.exir", "executorch"),
    ],
)
def test_a_missing_package_is_named_when_the_options_are_made(name, module, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(DeploymentError, match=rf"needs {module}, which is not installed; .* '\.\[{extra}\]'"):
        LatencyConfig(runtime=name)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("openvino", "nncf", "openvino"), ("executorch", "torchao", "executorch")],
)
def test_a_missing_quantiser_is_named_when_the_options_are_made(name, module, extra, monkeypatch):
    if MISSING[name]:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(
        DeploymentError, match=rf"int8 for .* needs {module}, which is not installed; .* '\.\[{extra}\]'"
    ):
        LatencyConfig(runtime=name, quantize="int8")


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ("onnx", "runtime must be torch, torch.compile, onnxruntime, .* but is 'onnx'; did you mean onnxruntime"),
        (3, "runtime must be a name or a function, but is 3"),
        (
            "command:onnx ./measure.sh",
            r"as 'command:FORMAT PROGRAM \{file\}', but is 'command:onnx ./mea",
        ),
        ("command:onnx './a {file}", "must be written as"),
        ("command:tflite ./m {file}", "must ask for one of the files pt2, onnx, xml, pte, but .* asks for 'tflite'"),
    ],
)
def test_runtimes_that_there_are_not(runtime, message):
    with pytest.raises(CafeNetError, match=message):
        LatencyConfig(runtime=runtime)


def test_formats_go_by_name_or_ending():
    assert [format_of_ending(text) for text in ("pte", "executorch", "xml", "onnx", "h5")] == [
        *("executorch", "executorch", "openvino", "onnx", "h5")
    ]


def test_measurements_say_what_they_were_made_with():
    assert LatencyConfig().made_with() == {
        **{"batch_size": 1, "num_threads": 1, "device": "cpu", "warmup": 3, "repeats": 15}
    }
    assert made_with("torch") == {"runtime": "torch", "runtime_version": torch.__version__}
    asked = LatencyConfig(runtime="command:onnx ./measure.sh {file}", retries=7)
    assert asked.made_with()["runtime"] == "command:onnx ./measure.sh {file}"
    assert "retries" not in asked.made_with()


def test_a_runtime_goes_through_recipes_and_flags(tmp_path):
    from cafenet.runs.recipe_files import load_recipe, to_yaml

    recipe = load_recipe("demo", ["--latency.runtime", "onnxruntime"])
    assert recipe.latency.runtime == "onnxruntime"
    (tmp_path / "again.yaml").write_text(to_yaml(recipe))
    assert load_recipe(str(tmp_path / "again.yaml")).latency == recipe.latency
    command = "command:onnx python measure.py {file}"
    assert load_recipe("demo", ["--latency.runtime", command]).latency.runtime == command


def test_a_program_is_written_once_for_every_format(tmp_path):
    program = exported(net(), INPUTS)
    FILE_FORMATS["pt2"].write(program, tmp_path / "model.pt2")
    (found,) = outputs_of(FILE_FORMATS["pt2"].read(tmp_path / "model.pt2", None), INPUTS)
    torch.testing.assert_close(found, net()(*INPUTS[0]))
    assert cafenet.LatencyConfig().runtime == "torch"
