"""Models of Hugging Face's transformers by name, made on this machine alone: nothing is ever downloaded.

A name is a local directory with a `config.json` (weights are loaded if they lie beside it), a model that is already in
the local cache of transformers, a class of models, a class of configs, or a type of models:

    hf:./my-bert    hf:BertForSequenceClassification    hf:BertConfig    hf:bert

A slim model is kept in such a directory, too: its config is that of the full model, and the slim file lies beside it.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from cafenet.common.extras import install
from cafenet.common.suggestions import did_you_mean
from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import CafeNetError, ModelNameError, SlimFileError, first_line
from cafenet.models.user_factory import build
from cafenet.modules.copying import RECORD
from cafenet.modules.unwrapping import unwrap
from cafenet.space.slim_file import load, save

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_OF_EVERY_CONFIG = {"attn_implementation"}
SLIM_FILE = "slim.pt"
"""Name of the slim file in the directory of a slim model."""
_CACHED_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def load_hugging_face(name: str, target: str, kwargs: dict[str, Any]) -> nn.Module:
    """Build a model of transformers.

    Args:
        name: Full name that the user gave, for error messages.
        target: The part after `hf:`.
        kwargs: Options of the config, such as `hidden_size=64`. `num_classes` stands for `num_labels`, and
            `architecture="BertForMaskedLM"` chooses the class of a config.

    Returns:
        The model.

    Raises:
        ModelNameError: If transformers is not installed, nothing local has this name, or the model cannot be built.
    """
    transformers = _import_transformers(name)
    options = {"num_labels" if key == "num_classes" else key: value for key, value in kwargs.items()}
    architecture = options.pop("architecture", None)
    with _offline():
        if (Path(target).expanduser() / "config.json").is_file():
            return _load_directory(name, transformers, str(Path(target).expanduser()), architecture, options)
        factory: Any = getattr(transformers, target, None)
        if isinstance(factory, type) and issubclass(factory, transformers.PreTrainedModel):
            config = _config(name, transformers, getattr(factory, "config_class", None), options)
            return _build(name, transformers, config, architecture or target)
        config_class = _config_class(transformers, target)
        if config_class is not None:
            return _build(name, transformers, _config(name, transformers, config_class, options), architecture)
        if not _is_cached(target, "config.json"):
            raise ModelNameError(_unknown(name, transformers, target))
        return _load_directory(name, transformers, target, architecture, options)


def save_pretrained(slim: nn.Module, directory: str | os.PathLike[str]) -> None:
    """Write a slim model of transformers to a directory, from which `load_model("hf:DIRECTORY")` reads it.

    The model's own `save_pretrained` writes tensors that do not fit its config, which can say a number of heads but not
    one for each layer. So the directory gets the config of the full model, and the slim file beside it.

    Args:
        slim: A slim model of transformers, as `extract`, `cafenet.load` or a search returns it.
        directory: The directory, which is made if it is not there.

    Raises:
        SlimFileError: If the model is not a slim model of transformers, the directory holds the weights of another
            model, or it cannot be written.
    """
    place = Path(directory)
    config: Any = getattr(unwrap(slim), "config", None)
    if not hasattr(config, "to_json_file") or not hasattr(unwrap(slim), RECORD):
        raise SlimFileError(
            f"save_pretrained takes a slim model of transformers, but got a {type(slim).__name__} without a config or "
            "without the record of a slim model; use cafenet.save or the model's own save_pretrained"
        )
    if place.is_dir() and _has_weights(str(place)):
        raise SlimFileError(f"{place} must hold no weights of another model, but does; give another directory")
    try:
        place.mkdir(parents=True, exist_ok=True)
        kept: Any = deepcopy(config)
        kept.architectures = [type(unwrap(slim)).__name__]
        kept.save_pretrained(place)
    except OSError as error:
        raise SlimFileError(f"{place} cannot be written: {error.strerror}; give another path") from error
    save(slim, place / SLIM_FILE)


def _import_transformers(name: str) -> ModuleType:
    """Import transformers, or explain how to install it."""
    with contextlib.suppress(CafeNetError):  # it imports torchvision if it is there, which needs our import first
        import_torchvision()
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ModelNameError(f"{name} needs transformers, which is not installed; {install('transformers')}") from error


def _load_directory(
    name: str, transformers: ModuleType, place: str, architecture: str | None, options: dict[str, Any]
) -> nn.Module:
    """Build a model from a directory or the local cache, with its weights if there are any."""
    try:
        config, unknown = transformers.AutoConfig.from_pretrained(place, return_unused_kwargs=True, **_LOCAL, **options)
    except Exception as error:
        raise ModelNameError(f"the config of {name} must be readable, but: {first_line(error)}") from error
    unknown = {key: value for key, value in unknown.items() if key not in _LOCAL}
    if unknown:
        raise ModelNameError(_unknown_option(name, config, next(iter(unknown))))
    chosen = architecture or next(iter(config.architectures or []), None)
    if not _has_weights(place):
        model = _build(name, transformers, config, chosen)
        slim = Path(place) / SLIM_FILE
        return load(slim, model).eval() if slim.is_file() else model
    factory = partial(_model_class(name, transformers, chosen).from_pretrained, place)
    return build(name, factory, {"config": config, "local_files_only": True})


def _build(name: str, transformers: ModuleType, config: Any, architecture: str | None) -> nn.Module:
    """Build a model with fresh weights from its config."""
    model_class = _model_class(name, transformers, architecture)
    is_auto = model_class is transformers.AutoModel
    return build(name, model_class.from_config if is_auto else model_class, {"config": config})


def _model_class(name: str, transformers: ModuleType, architecture: str | None) -> Any:
    """Return a class of models by its name; without one, that of the bare network that a config belongs to."""
    if architecture is None:
        return transformers.AutoModel
    found = getattr(transformers, str(architecture), None)
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        near = did_you_mean(str(architecture), dir(transformers), most=3, cutoff=0.75)
        raise ModelNameError(
            f"the architecture of {name} must be a class of models in transformers, but is {architecture!r}"
            + (f"; {near}" if near else "")
        )
    return found


def _config_class(transformers: ModuleType, target: str) -> Any:
    """Return the class of configs that a name such as `BertConfig` or `bert` stands for, or None."""
    found = getattr(transformers, target, None)
    if isinstance(found, type) and issubclass(found, transformers.PretrainedConfig):
        return found
    types = transformers.CONFIG_MAPPING
    return types[target] if target in types else None  # noqa: SIM401 - its `get` knows nothing that is not imported yet


def _config(name: str, transformers: ModuleType, config_class: Any, options: dict[str, Any]) -> Any:
    """Make a config; options that it does not have are refused, where transformers would silently keep them."""
    try:
        plain, config = config_class(), config_class(**options)
    except Exception as error:
        raise ModelNameError(f"{name} could not be configured: {first_line(error)}") from error
    generation = transformers.GenerationConfig()  # such as decoder_start_token_id, which configs may hold, too
    for key in options:
        if key not in _OF_EVERY_CONFIG and not hasattr(plain, key) and not hasattr(generation, key):
            raise ModelNameError(_unknown_option(name, plain, key))
    return config


def _unknown_option(name: str, config: Any, key: str) -> str:
    """Return the message for an option that a config does not have."""
    near = did_you_mean(key, list(config.to_dict()), most=3, cutoff=0.6)
    return f"{type(config).__name__} of {name} has no option {key!r}" + (f"; {near}" if near else "")


def _unknown(name: str, transformers: ModuleType, target: str) -> str:
    """Return the message for a name that nothing on this machine has."""
    known = [*dir(transformers), *transformers.CONFIG_MAPPING.keys()]
    near = did_you_mean(target, known, most=3, cutoff=0.75)
    return (
        f"{name} must be a local directory with a config.json, a model in the local cache, or a class or type of "
        f"models such as hf:BertConfig or hf:bert, but {target!r} is none of them, and nothing is downloaded"
        + (f"; {near}" if near else "")
    )


def _has_weights(place: str) -> bool:
    """Return whether weights lie in a directory, or in the local cache."""
    if Path(place).is_dir():
        return any(True for ending in _WEIGHTS for _ in Path(place).glob(ending))
    return any(_is_cached(place, f"{name}{index}") for name in _CACHED_WEIGHTS for index in ("", ".index.json"))


def _is_cached(target: str, file: str) -> bool:
    """Return whether the local cache of transformers holds a file of a model."""
    try:
        found = importlib.import_module("huggingface_hub").try_to_load_from_cache(target, file)
    except ValueError:  # not a name that a model can have
        return False
    return isinstance(found, str)


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep the library that downloads off the network, also for parts such as a pretrained backbone inside a model."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
