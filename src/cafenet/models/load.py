"""Models by their name on the command line.

A name is `SOURCE:NAME`. SOURCE is `torchvision`, `timm`, `hf` (transformers), `cafenet` (the paper's variants), a
Python file or an importable module:

    torchvision:mobilenet_v2    timm:resnet50    hf:BertForMaskedLM    cafenet:cifar_vgg19    path/to/net.py:build
    my_package.nets:SmallNet
"""

import importlib
import inspect
from collections.abc import Iterable
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from cafenet.common.extras import install
from cafenet.common.options import check_arguments
from cafenet.common.suggestions import did_you_mean
from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import ModelNameError
from cafenet.models.hugging_face import load_hugging_face
from cafenet.models.registry import PAPER_MODELS, build_paper_model
from cafenet.models.user_factory import build, find_factory, import_source

_FORMS = "torchvision:NAME, timm:NAME, hf:NAME_OR_PATH, cafenet:NAME, path/to/file.py:FACTORY or package.module:FACTORY"

# By default, these models draw truncated normal weights, which takes seconds, and warn that this will change.
_SKIP_SLOW_INIT = {"googlenet", "inception_v3", "quantized_googlenet", "quantized_inception_v3"}


def load_model(name: str, **kwargs: Any) -> nn.Module:
    """Build a model with fresh weights by its name. Only a local directory of transformers may bring its own weights.

    Args:
        name: The name, for example "torchvision:resnet18", "timm:resnet50", "hf:BertForSequenceClassification",
            "hf:./my-bert", "cafenet:cifar_vgg19", "path/to/net.py:build" or "my_package.nets:SmallNet".
        **kwargs: Arguments of the model's factory. `num_classes=10` gives ten class scores; `flops_factor=1.5` makes a
            network of the paper wider until it has 1.5 times its FLOPs; for a model of transformers, options of its
            config such as `hidden_size=64`.

    Returns:
        The model.

    Raises:
        ModelNameError: If the name is unknown, or the user's code fails.

    Example:
        >>> import cafenet
        >>> model = cafenet.load_model("cafenet:plain_cnn", num_classes=10)
        >>> sum(parameter.numel() for parameter in model.parameters())
        53002
    """
    source, target = _split(name)
    if source == "torchvision":
        return _load_torchvision(name, target, kwargs)
    if source == "timm":
        return _load_timm(name, target, kwargs)
    if source == "hf":
        return load_hugging_face(name, target, kwargs)
    if source == "cafenet":
        if target not in PAPER_MODELS:
            raise ModelNameError(_unknown(name, "cafenet", target, PAPER_MODELS))
        return build(name, partial(build_paper_model, target), kwargs)
    with import_source(source) as module:
        return build(name, find_factory(name, module, target), kwargs)


def default_input_size(name: str) -> tuple[int, ...]:
    """Return the published input size of a model, or (3, 224, 224) if it has none.

    Args:
        name: Name of the model, as for `load_model`.

    Returns:
        Channels, height and width.
    """
    return published_input_size(name) or (3, 224, 224)


def published_input_size(name: str) -> tuple[int, ...] | None:
    """Return the input size that a model was published for.

    Args:
        name: Name of the model, as for `load_model`.

    Returns:
        Channels, height and width; (3, 299, 299) for "torchvision:inception_v3". If several sizes were published, the
        smallest is returned; for a user's own model, None.
    """
    source, target = _split(name)
    if source == "torchvision":
        models = import_torchvision().models
        if target in models.list_models(module=models):
            size = min(weights.transforms().crop_size[0] for weights in models.get_model_weights(target))
            return (3, size, size)
    if source == "timm":
        config = _import_timm(name).get_pretrained_cfg(target)
        if config is not None:
            return tuple(config.input_size)
    if source == "cafenet" and target in PAPER_MODELS:
        return PAPER_MODELS[target].input_size
    return None


def _split(name: str) -> tuple[str, str]:
    """Split a name into its source and its target."""
    check_arguments(ModelNameError, name=(name, str))
    source, _, target = name.partition(":")
    if source not in ("torchvision", "timm", "hf", "cafenet"):
        source, _, target = name.rpartition(":")  # a path may contain a colon, as in C:/net.py:build
    if not source or not target:
        remedy = "" if ":" in name else f"; put its source in front, as in torchvision:{name}"
        raise ModelNameError(f"a model name must be one of {_FORMS}, but got {name!r}{remedy}")
    return source, target


def _load_torchvision(name: str, target: str, kwargs: dict[str, Any]) -> nn.Module:
    """Build a model of torchvision."""
    models = import_torchvision().models
    known = models.list_models()
    if target not in known:
        raise ModelNameError(_unknown(name, "torchvision", target, known))
    factory = models.get_model_builder(target)
    defaults: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(factory).parameters:
        defaults["weights_backbone"] = None
    if target in _SKIP_SLOW_INIT:
        defaults["init_weights"] = False
    return build(name, factory, defaults | kwargs)


def _load_timm(name: str, target: str, kwargs: dict[str, Any]) -> nn.Module:
    """Build a model of timm."""
    timm = _import_timm(name)
    if not timm.is_model(target):
        raise ModelNameError(_unknown(name, "timm", target, timm.list_models()))
    return build(name, timm.create_model, {"model_name": target, "pretrained": False} | kwargs)


def _import_timm(name: str) -> ModuleType:
    """Import timm, or explain how to install it."""
    import_torchvision()  # timm imports torchvision, which needs our import first with some builds of torch
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise ModelNameError(f"{name} needs timm, which is not installed; {install('timm')}") from error


def _unknown(name: str, source: str, target: str, known: Iterable[str]) -> str:
    """Return the message for an unknown model, with names like it."""
    near = did_you_mean(f"{source}:{target}", (f"{source}:{each}" for each in known), most=5, cutoff=0.75)
    return f"{source} has no model {target!r}" + (f"; {near}" if near else ", nor one with a name like it")
