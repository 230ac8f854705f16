"""Slim attention: files and exports hold the numbers of heads, and loading needs the user's own class alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

import cafenet
from cafenet.common.torchvision_compat import import_torchvision


def vit() -> nn.Module:
    """A small ViT of torchvision: 2 layers, 4 heads of 8 features."""
    torchvision = import_torchvision()
    torch.manual_seed(0)
    model: nn.Module = torchvision.models.VisionTransformer(16, 4, 2, 4, 32, 48, num_classes=5)
    nn.init.normal_(model.get_submodule("heads.head").weight)  # it begins with zeros, and the outputs would be alike
    return model.eval()


def test_a_slim_vit_comes_back_from_its_file(tmp_path: Path):
    """Half of the heads, and their features of the stream; all modules are those of torchvision."""
    image = torch.randn(1, 3, 16, 16)
    space = cafenet.trace(vit(), image)
    stream = next(group for group in space.groups if group.divisor == 8)
    slim = space.extract({stream.name: 16}).eval()
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", vit())
    assert torch.equal(loaded(image), slim(image))
    attention = loaded.get_submodule("encoder.layers.encoder_layer_0.self_attention")
    assert type(attention) is nn.MultiheadAttention
    assert (attention.num_heads, attention.head_dim, attention.embed_dim) == (2, 8, 16)


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_slim_vit_is_exported(ending: str, tmp_path: Path):
    """`export` runs the file again, and returns the largest difference."""
    if ending == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    image = torch.randn(1, 3, 16, 16)
    space = cafenet.trace(vit(), image)
    slim = space.extract({next(group.name for group in space.groups if group.divisor == 8): 16}).eval()
    assert cafenet.export(slim, image, tmp_path / f"slim.{ending}") < 1e-4
