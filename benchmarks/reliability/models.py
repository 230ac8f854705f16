"""Models unchanged: timm's, torchvision's and Hugging Face's models before and after CafeNet has looked at them.

Each model is compared with itself after `trace`, `verify`, `extract` and a `trace` that fails in the middle of the
forward: the hooks of every module, the names and values of every attribute, parameters and buffers to the last bit, and
all random states. In the end it must compute what an untouched copy computes.
"""

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cafenet
from benchmarks.reliability import children
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.models_list import HUGGING_FACE, TIMM, TORCHVISION, hugging_face
from cafenet.modules.tensors import tensors_of

LIMIT_S = 120.0
SAME, SAME_REFUSED = "unchanged", "unchanged, trace refused"
CHANGED, BROKEN, FAILED, SLOW = "changed", "computes something else", "traceback", f"longer than {LIMIT_S:.0f} s"


def cases(shared: Path) -> Iterable[Case]:
    """All models of all three libraries."""
    for name in TIMM:
        yield Case(f"timm:{name}", _check(lambda n=name: _by_name(f"timm:{n}")), "timm")
    for name in TORCHVISION:
        yield Case(f"torchvision:{name}", _check(lambda n=name: _by_name(f"torchvision:{n}")), "torchvision")
    for name in HUGGING_FACE:
        yield Case(f"transformers:{name}", _check(lambda n=name: hugging_face(n)), "Hugging Face")


def _by_name(name: str) -> tuple[nn.Module, Any]:
    from cafenet.models import default_input_size, load_model

    size = default_input_size(name)
    model = load_model(name)
    return model, torch.randn(1, *size, generator=torch.Generator().manual_seed(0))


def _check(build: Callable[[], tuple[nn.Module, Any]]) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        ended = children.run(lambda: looked_at(*build()), place / "words", place / "cwd", LIMIT_S)
        if ended.code is None:
            return Outcome(SLOW, "no end")
        if ended.value is None:
            return Outcome(FAILED, ended.last_line)
        return Outcome(*ended.value)

    return check


def looked_at(model: nn.Module, inputs: Any) -> list[str]:
    """Let CafeNet look at a model in every way; returns the outcome and what differs."""
    torch.manual_seed(0)
    model.eval()
    twin = copy.deepcopy(model)
    refused = ""
    for step, look in STEPS.items():
        before = snapshot(model)
        try:
            look(model, inputs)
        except cafenet.CafeNetError as error:
            refused = refused or f"{step}: {error}"
        after = snapshot(model)
        changes = before.differences(after)
        if changes:
            return [CHANGED, f"{step}: {'; '.join(changes[:3])} ({len(changes)} in all)"]
    problem = _different_outputs(model, twin, inputs)
    if problem:
        return [BROKEN, problem]
    return [SAME_REFUSED if refused else SAME, refused]


def _verify(model: nn.Module, inputs: Any) -> None:
    cafenet.verify(cafenet.trace(model, inputs, verify=False), inputs, trials=1)


def _extract(model: nn.Module, inputs: Any) -> None:
    space = cafenet.trace(model, inputs, verify=False)
    space.extract(space.min_widths)


def _fail(model: nn.Module, inputs: Any) -> None:
    """A trace whose forward raises at the last layer; the hook that does it is there before and after."""
    last = [module for module in model.modules() if not list(module.children())][-1]
    handle = last.register_forward_pre_hook(_stop)
    before = snapshot(model)
    try:
        cafenet.trace(model, inputs)
    except cafenet.CafeNetError:
        changes = before.differences(snapshot(model))
        if changes:
            setattr(model, CHANGES, changes[0])
    finally:
        handle.remove()


def _stop(module: nn.Module, inputs: Any) -> None:
    raise RuntimeError("stopped in the middle")


CHANGES = "changed_by_a_failed_trace"
STEPS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "trace": lambda model, inputs: cafenet.trace(model, inputs),
    "verify": _verify,
    "extract": _extract,
    "failed trace": _fail,
}


@dataclass(frozen=True)
class Snapshot:
    """Everything about a model that must stay, by the place where it is."""

    parts: dict[str, str]

    def differences(self, other: "Snapshot") -> list[str]:
        """Places where two snapshots differ, each with what it was and is."""
        return [
            f"{place} was {self.parts.get(place, 'absent')}, is {other.parts.get(place, 'absent')}"
            for place in {**self.parts, **other.parts}
            if self.parts.get(place) != other.parts.get(place)
        ]


def snapshot(model: nn.Module) -> Snapshot:
    """Hooks, attributes, tensors, modes and random states."""
    parts: dict[str, str] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            place = f"{path}.{name}"
            if name in ("_parameters", "_buffers"):
                parts |= {f"{place}.{key}": _tensor(tensor) for key, tensor in value.items()}
            else:
                parts[place] = _shown(value)
    parts["torch random state"] = _digest(torch.get_rng_state().numpy().tobytes())
    parts["numpy random state"] = _digest(repr(np.random.get_state()).encode())
    parts["Python random state"] = _digest(repr(random.getstate()).encode())
    return Snapshot(parts)


def _tensor(tensor: Tensor | None) -> str:
    if tensor is None:
        return "None"
    content = "no values" if tensor.is_meta else _digest(tensor.detach().contiguous().view(-1).numpy().tobytes())
    return f"{type(tensor).__name__} {tensor.dtype} {list(tensor.shape)} {tensor.requires_grad} {id(tensor)} {content}"


def _shown(value: Any, depth: int = 0) -> str:
    """An attribute's value: plain ones as they are, containers with what is inside, others by identity."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, dict) and depth < 3:
        return "{" + ", ".join(f"{key}: {_shown(item, depth + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)) and depth < 3:
        return f"[{', '.join(_shown(item, depth + 1) for item in value)}]"
    return (
        repr(value) if isinstance(value, (int, float, str, bool, type(None))) else f"{type(value).__name__} {id(value)}"
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _different_outputs(model: nn.Module, twin: nn.Module, inputs: Any) -> str:
    """Differences between a model's outputs and those of a copy that nobody looked at; both may raise the same."""
    own, other = (_outputs(each, inputs) for each in (model, twin))
    return (
        "" if own == other else f"outputs are {json.dumps(own)[:100]}, of an untouched copy {json.dumps(other)[:100]}"
    )


def _outputs(model: nn.Module, inputs: Any) -> list[str]:
    torch.manual_seed(1)
    try:
        with torch.no_grad():
            output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:200]]
    return [
        f"{list(tensor.shape)} {_digest(tensor.contiguous().view(-1).numpy().tobytes())}"
        for tensor in tensors_of(output)
    ]


PART = Part("models", "Models unchanged", cases, (SAME, SAME_REFUSED), (CHANGED, BROKEN, FAILED, SLOW))
