"""torchvision is imported as it is where that works, and with two operator schemas defined where it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import CafeNetError

# What torchvision does on import, in short: the second line fails beside a torch without the compiled operators.
NEEDS_OPS = """
import torch
torch.library.register_fake("torchvision::nms")(lambda dets, scores, iou_threshold: scores)
torch.library.register_fake("torchvision::qnms")(lambda dets, scores, iou_threshold: scores)
"""


def run_with_fake_torchvision(tmp_path: Path, package: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a new process, where `import torchvision` runs the text `package`."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(package)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_torchvision_is_imported_once_and_its_models_work():
    torchvision = import_torchvision()
    assert import_torchvision() is torchvision is sys.modules["torchvision"]
    assert torchvision.models.squeezenet1_1(weights=None).num_classes == 1000


def test_missing_schemas_are_defined_and_stay_defined(tmp_path: Path):
    result = run_with_fake_torchvision(
        tmp_path,
        NEEDS_OPS,
        "import gc, torch\n"
        "from cafenet.common.torchvision_compat import import_torchvision\n"
        "first = import_torchvision(); gc.collect()\n"
        "assert import_torchvision() is first\n"
        "scores = torch.empty(5, device='meta')\n"
        "assert torch.ops.torchvision.nms(scores, scores, 0.5).shape == (5,)\n",
    )
    assert result.returncode == 0, result.stderr


def test_nothing_is_defined_where_the_import_works(tmp_path: Path):
    result = run_with_fake_torchvision(
        tmp_path,
        "",
        "import torch\n"
        "from cafenet.common.torchvision_compat import import_torchvision\n"
        "import_torchvision()\n"
        "assert not hasattr(torch.ops.torchvision, 'nms')\n",
    )
    assert result.returncode == 0, result.stderr


def test_other_failures_of_the_import_are_not_hidden(tmp_path: Path):
    result = run_with_fake_torchvision(
        tmp_path,
        "raise RuntimeError('something else is wrong')",
        "from cafenet.common.torchvision_compat import import_torchvision; import_torchvision()",
    )
    assert result.stderr.strip().endswith("RuntimeError: something else is wrong")


def test_torchvision_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(CafeNetError, match=r"pip install -c constraints.txt '.\[vision\]'"):
        import_torchvision()


def test_a_plain_import_works_after_that_of_cafenet_which_imports_no_torch(tmp_path: Path):
    result = run_with_fake_torchvision(
        tmp_path,
        NEEDS_OPS,
        "import sys, cafenet\n"
        "assert 'torch' not in sys.modules and 'torchvision' not in sys.modules\n"
        "import torchvision\n"
        "from cafenet.common.torchvision_compat import lacks_compiled_operators\n"
        "assert torchvision.torch.ops.torchvision.nms and lacks_compiled_operators()\n",
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_torchvision_that_is_installed_can_be_imported_after_cafenet():
    """Also where it was built for another torch, which a plain import says."""
    pytest.importorskip("torchvision")
    alone, after = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        for script in ("import torchvision", "import cafenet, torchvision; torchvision.models.resnet18()")
    )
    assert after.returncode == 0, after.stderr
    assert alone.returncode == 0 or "torchvision::nms" in alone.stderr
