"""A model name leads to a module, or to one sentence that says what to change."""

import dataclasses
import importlib.util
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import ModelNameError
from cafenet.models import default_input_size, load_model

NET_FILE = """
from torch import nn
from neighbour import NUM_CHANNELS

not_callable = 3
instance = nn.ReLU()

def build(num_classes=10):
    return nn.Sequential(nn.Conv2d(3, NUM_CHANNELS, 3), nn.Flatten(), nn.Linear(NUM_CHANNELS, num_classes))

def build_nothing():
    pass

def build_late():
    from lazy_neighbour import build
    return build()

def fail():
    raise ValueError("no such block")
"""


@pytest.fixture
def net_file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("NUM_CHANNELS = 7\n")
    (tmp_path / "lazy_neighbour.py").write_text("from torch.nn import ReLU as build\n")
    path = tmp_path / "net.py"
    path.write_text(NET_FILE)
    return path


def error_of(name: str, **kwargs: object) -> str:
    with pytest.raises(ModelNameError) as raised:
        load_model(name, **kwargs)
    return str(raised.value)


# torchvision and timm


def test_torchvision_model_with_keyword_arguments():
    model = load_model("torchvision:mobilenet_v2", num_classes=10)
    assert type(model).__name__ == "MobileNetV2"
    assert model.classifier[1].out_features == 10


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_torchvision_model_is_built_without_warnings(name: str):
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("error")
        assert isinstance(load_model(f"torchvision:{name}"), nn.Module)


def test_torchvision_model_with_a_backbone_downloads_nothing(monkeypatch: pytest.MonkeyPatch):
    api = import_torchvision().models._api
    monkeypatch.setattr(api, "load_state_dict_from_url", lambda *args, **kwargs: pytest.fail("download"))
    with torch.device("meta"):
        assert isinstance(load_model("torchvision:fcn_resnet50"), nn.Module)


def test_unknown_torchvision_model_lists_near_misses():
    message = error_of("torchvision:mobilenetv2")
    assert "has no model 'mobilenetv2'" in message
    assert "torchvision:mobilenet_v2" in message


def test_unknown_torchvision_model_without_near_misses():
    assert error_of("torchvision:qqqqqqqq") == "torchvision has no model 'qqqqqqqq', nor one with a name like it"


def test_keyword_argument_that_the_model_does_not_take():
    message = error_of("torchvision:mobilenet_v2", num_clases=10)
    assert message.startswith("torchvision:mobilenet_v2 could not be built: TypeError")
    assert "num_clases" in message


def test_timm_model():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    model = load_model("timm:resnet18", num_classes=10)
    assert model.fc.out_features == 10
    assert default_input_size("timm:resnet18") == (3, 224, 224)
    assert "timm:resnet18" in error_of("timm:resnet_18")


def test_timm_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    assert error_of("timm:resnet18").endswith(
        "run, in the checkout of CafeNet: pip install -c constraints.txt '.[timm]'"
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("torchvision:mobilenet_v2", (3, 224, 224)),
        ("torchvision:inception_v3", (3, 299, 299)),
        ("torchvision:efficientnet_b1", (3, 240, 240)),
        ("torchvision:vit_h_14", (3, 224, 224)),  # also published for 518, which the plain model does not take
        ("torchvision:fcn_resnet50", (3, 224, 224)),
        ("net.py:build", (3, 224, 224)),
    ],
)
def test_default_input_size(name: str, size: tuple[int, ...]):
    assert default_input_size(name) == size


# files


def test_factory_in_a_file_that_imports_its_neighbour(net_file: Path):
    path_before = list(sys.path)
    model = load_model(f"{net_file}:build", num_classes=4)
    assert model[0].out_channels == 7
    assert model[2].out_features == 4
    assert sys.path == path_before


def test_factory_that_imports_its_neighbour_when_called(net_file: Path):
    assert isinstance(load_model(f"{net_file}:build_late"), nn.ReLU)


def test_relative_path(net_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(net_file.parent)
    assert isinstance(load_model("net.py:build"), nn.Sequential)


def test_files_with_the_same_name_stay_apart(tmp_path: Path):
    for folder, layer in (("one", "ReLU"), ("two", "Tanh")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twin.py").write_text(f"from torch.nn import {layer} as build\n")
    assert isinstance(load_model(f"{tmp_path}/one/twin.py:build"), nn.ReLU)
    assert isinstance(load_model(f"{tmp_path}/two/twin.py:build"), nn.Tanh)


def test_file_may_define_dataclasses(tmp_path: Path):
    (tmp_path / "cfg.py").write_text(
        "from __future__ import annotations\nimport dataclasses\nfrom torch import nn\n"
        "@dataclasses.dataclass\nclass Config:\n    width: int = 5\n"
        "class Net(nn.ReLU):\n    config = Config()\n"
    )
    assert dataclasses.asdict(load_model(f"{tmp_path}/cfg.py:Net").config) == {"width": 5}


def test_missing_file(tmp_path: Path):
    assert error_of(f"{tmp_path}/absent.py:build") == (
        f"the file of a model must exist, but there is no {tmp_path}/absent.py"
    )


def test_missing_factory_lists_near_misses(net_file: Path):
    message = error_of(f"{net_file}:biuld")
    assert f"{net_file} has no 'biuld'" in message
    assert "it has build" in message


@pytest.mark.parametrize("target", ["not_callable", "instance"])
def test_target_that_is_no_factory(net_file: Path, target: str):
    assert "must be a function or class that returns an nn.Module" in error_of(f"{net_file}:{target}")


def test_factory_that_returns_something_else(net_file: Path):
    assert error_of(f"{net_file}:build_nothing").endswith("must return an nn.Module, but returned None")


def test_factory_that_raises_names_the_line(net_file: Path):
    line = NET_FILE.splitlines().index('    raise ValueError("no such block")') + 1
    assert error_of(f"{net_file}:fail") == (
        f"{net_file}:fail could not be built: ValueError: no such block ({net_file}, line {line})"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\nx.y", "AttributeError: 'int' object has no attribute 'y' ({path}, line 2)"),
        ("import absent_package", "ModuleNotFoundError: No module named 'absent_package' ({path}, line 1)"),
        ("def f(:", "SyntaxError: invalid syntax ({path}, line 1)"),
        ("import sys\nsys.exit(3)", "SystemExit: 3 ({path}, line 2)"),
    ],
)
def test_file_that_raises_on_import(tmp_path: Path, text: str, reason: str):
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert error_of(f"{path}:build") == f"{path} could not be imported: {reason.format(path=path)}"


# modules


def test_factory_in_a_module():
    assert isinstance(load_model("torch.nn:Linear", in_features=2, out_features=3), nn.Linear)


def test_missing_module():
    assert error_of("absent_package.nets:build").startswith("there is no module 'absent_package'")


def test_missing_submodule():
    assert error_of("torch.absent:build").startswith("there is no module 'torch.absent'")


def test_module_that_fails_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "needs_absent.py").write_text("\nimport absent_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = error_of("needs_absent:build")
    assert message.startswith("needs_absent could not be imported: ModuleNotFoundError")
    assert message.endswith("line 2)")


@pytest.mark.parametrize("name", ["", ":", "resnet18", "torchvision:", ":build", "net.py:"])
def test_name_of_no_known_form(name: str):
    message = error_of(name)
    assert message.startswith("a model name must be one of torchvision:NAME")
    assert repr(name) in message


def test_bare_name_is_shown_its_source():
    assert error_of("resnet18").endswith("put its source in front, as in torchvision:resnet18")
