"""The models of the zoo: their names, how they are built, and the inputs they are measured and checked with."""

from fnmatch import fnmatch

import torch
from torch import Tensor, nn

from cafenet.common.torchvision_compat import import_torchvision

TIMM_PREFIX = "timm:"
TIMM_MODELS = (  # one for each family
    "coat_tiny",
    "coatnet_0_rw_224",
    "convformer_s18",
    "convnext_tiny",
    "cspresnet50",
    "deit3_small_patch16_224",
    "densenet121",
    "dla60",
    "dpn68",
    "edgenext_small",
    "efficientnetv2_rw_t",
    "fasternet_t0",
    "ghostnet_100",
    "hrnet_w18_small",
    "inception_v4",
    "levit_128",
    "mixer_s16_224",
    "mobilenetv3_large_100",
    "mobilevit_s",
    "nfnet_l0",
    "poolformer_s12",
    "regnety_008",
    "repvgg_b0",
    "res2net50_26w_4s",
    "resmlp_12_224",
    "resnest50d",
    "swin_tiny_patch4_window7_224",
    "vit_small_patch16_224",
    "xception41",
)

SMALL_SIZES = (64, 96, 128, 160, 192)
"""Image sizes for runs on real values, tried in this order; a model that takes none of them gets its own size."""

SHALLOW_ABOVE_PARAMS = 250_000_000
"""Larger models are checked on real values as a copy with two blocks a stage: memory, not correctness, is the limit."""


def model_names(patterns: list[str], *, timm: bool) -> list[str]:
    """All classification models of torchvision, and the timm list if asked, that match one of the patterns."""
    models = import_torchvision().models
    names = list(models.list_models(module=models))
    if timm:
        names += [TIMM_PREFIX + name for name in TIMM_MODELS]
    return [name for name in names if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


def build_model(name: str) -> nn.Module:
    """The model with random weights, in eval mode."""
    torchvision = import_torchvision()  # timm imports it too, and would fail where only this import works
    if name.startswith(TIMM_PREFIX):
        import timm  # optional, and slow to import

        model: nn.Module = timm.create_model(name.removeprefix(TIMM_PREFIX), pretrained=False)
    else:
        model = torchvision.models.get_model(name, weights=None)
    return model.eval()


def image_size(name: str, model: nn.Module) -> int:
    """The size that the model was made for."""
    if name.startswith(TIMM_PREFIX):
        return int(model.pretrained_cfg["input_size"][-1])  # type: ignore[index]
    return 299 if name == "inception_v3" else 224


def image(size: int) -> Tensor:
    """One random image."""
    return torch.randn(1, 3, size, size)


def small_size(model: nn.Module, own_size: int) -> int:
    """The smallest size that the model accepts."""
    for size in SMALL_SIZES:
        try:
            MetaRun(model, size)()
        except Exception:  # the model's own way of refusing a size
            continue
        return size
    return own_size


class MetaRun:
    """One run of the model on meta tensors, without values: the least that any tool which runs the model must do."""

    def __init__(self, model: nn.Module, size: int) -> None:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._model, self._image = model, image(size).to("meta")
        self._tensors = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}

    def __call__(self) -> Tensor:
        with torch.no_grad():
            output: Tensor = torch.func.functional_call(self._model, self._tensors, (self._image,))
        return output


def is_huge(model: nn.Module) -> bool:
    """Whether the model is checked as a shallow copy."""
    return num_params(model) > SHALLOW_ABOVE_PARAMS


def num_params(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def make_shallow(model: nn.Module, num_blocks: int = 2) -> None:
    """Keep the first blocks of every stage, a stage being a sequence of blocks of one kind, in place."""
    for module in model.modules():
        kinds = {type(block) for block in module} if isinstance(module, nn.Sequential) else set()
        if len(kinds) == 1 and not issubclass(kinds.pop(), nn.Sequential):  # a sequence of stages stays whole
            del module[num_blocks:]  # type: ignore[operator]
