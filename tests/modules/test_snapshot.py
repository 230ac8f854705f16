"""The user's model comes out of every call as it went in: hooks, attributes, submodules, tensors, outputs, chance."""

import functools
import random
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cafenet
from cafenet import Supernet
from cafenet.common.torchvision_compat import import_torchvision
from cafenet.errors import TraceError
from cafenet.modules.inputs import call_arguments
from cafenet.modules.randomness import fixed_randomness
from cafenet.modules.tensors import tensors_of
from cafenet.space.bins import uniform_bins
from cafenet.tracing.tracer import find_space
from tests.helpers.hugging_face import BUILDERS, build
from tests.helpers.networks import IMAGE, Forward, pooled

HOOKS = [name for name in vars(nn.Module()) if "hooks" in name]
TORCHVISION = ["mobilenet_v3_small", "googlenet"]
SLOW_TORCHVISION = ["densenet121", "swin_t", "regnet_y_400mf", "inception_v3", "vit_b_32"]
TIMM = ["resnet10t", "levit_128s", "mobilenetv3_small_050"]
SLOW_TIMM = ["vit_tiny_patch16_224", "efficientvit_b0", "poolformer_s12", "coatnet_pico_rw_224", "convnext_atto"]


def with_slow(names: list[str], slow: list[str]) -> list[Any]:
    return [*names, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


def state_of(model: nn.Module) -> dict[str, Any]:
    """All of a model that a call could leave changed, and the global random numbers."""
    state: dict[str, Any] = {
        "random": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),
        "modules": [(path, id(module), type(module), module.training) for path, module in model.named_modules()],
    }
    for path, module in model.named_modules():
        state[f"{path} keys"] = list(vars(module))
        state[f"{path} values"] = [id(value) for value in vars(module).values()]
        state[f"{path} hooks"] = {name: [id(hook) for hook in vars(module)[name].values()] for name in HOOKS}
        for name in ("_parameters", "_buffers", "_modules"):
            state[f"{path} {name}"] = {key: id(value) for key, value in vars(module)[name].items()}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return state | {name: (tensor.sum(dtype=torch.float64).item(), tensor.requires_grad) for name, tensor in tensors}


def expect_unchanged(make: Callable[[], tuple[nn.Module, Any]]) -> None:
    """Trace, verify, extract, train a supernet for a step and fail; the model equals a twin that nobody touched."""
    twin, inputs = make()
    model, _ = make()
    before = state_of(model)
    space = find_space(model, inputs)
    assert state_of(model) == before, "trace"
    if space.groups:
        cafenet.verify(space, inputs, trials=1)
        assert state_of(model) == before, "verify"
        space.extract(space.min_widths)
        assert state_of(model) == before, "extract"
        with fixed_randomness(0):
            step(model, space, inputs)
        assert state_of(model) == before, "a step of a supernet"
    for failing in ({"freeze": "nothing.like.this"}, {"rules": {torch.ops.aten.addmm: fail, torch.ops.aten.mm: fail}}):
        with pytest.raises(TraceError):
            cafenet.trace(model, inputs, **failing)
        assert state_of(model) == before, "a failed trace"
    with torch.no_grad():
        args, kwargs = call_arguments(inputs)
        for _ in range(2):
            pairs = zip(tensors_of(model(*args, **kwargs)), tensors_of(twin(*args, **kwargs)), strict=True)
            assert all(ours.equal(theirs) for ours, theirs in pairs)
    assert hooks(model) == hooks(twin)


def fail(run: Any, call: Any) -> None:
    raise RuntimeError("a rule of the user's fails in the middle of the forward")


def hooks(model: nn.Module) -> int:
    return sum(len(vars(module)[name]) for module in model.modules() for name in HOOKS)


def step(model: nn.Module, space: cafenet.WidthSpace, inputs: Any) -> None:
    supernet = Supernet(model, space, uniform_bins(space, 2)).train()
    step = supernet.step((inputs, None), lambda output, _: sum(t.float().mean() for t in floats(output)))
    step.loss.backward()


def floats(output: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_of(output) if tensor.is_floating_point() and tensor.requires_grad]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(BUILDERS))
def test_transformers(name: str):
    expect_unchanged(lambda: build(name))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", with_slow(TORCHVISION, SLOW_TORCHVISION))
def test_torchvision(name: str):
    expect_unchanged(lambda: built(f"torchvision:{name}", 96 if name == "inception_v3" else 64))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", with_slow(TIMM, SLOW_TIMM))
def test_timm(name: str):
    import_torchvision()  # which timm imports, and fails beside a CPU-only torch
    pytest.importorskip("timm", reason="timm is not installed")
    expect_unchanged(lambda: built(f"timm:{name}", 224 if "vit" in name or "coat" in name else 64))


def built(name: str, size: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    options = {"image_size": size} if name == "torchvision:vit_b_32" else {}
    return cafenet.load_model(name, num_classes=5, **options).eval(), torch.randn(2, 3, size, size)


class Memo:
    """An object of the user's own that a forward writes to."""

    def __init__(self) -> None:
        self.table: Tensor | None = None
        self.sizes: dict[int, int] = {}


class Hoarder(nn.Module):
    """Its forward adds whatever a forward can add."""

    tables: ClassVar[dict[int, Tensor]] = {}
    num_calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 5)
        self.memo = Memo()
        self.counter = torch.zeros(())
        self.recent: deque[int] = deque(maxlen=3)
        self.log = list(range(2000))
        self.rng = np.random.default_rng(0)
        self.hidden = [nn.Linear(2, 2)]
        self.outputs: list[Tensor] = []
        self.conv.register_forward_hook(lambda module, args, output, kept=[]: kept.append(output))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if "ready" not in vars(self):
            self.ready = True
            self.conv.register_forward_hook(lambda module, args, output: output + 1)
            self.conv.register_forward_pre_hook(lambda module, args: None)
            self.conv.register_full_backward_hook(lambda module, given, bin_counts: None)
            self.add_module("late", nn.Linear(2, 2))
            self.register_buffer("seen", torch.ones(2))
            self.register_parameter("scale", nn.Parameter(torch.ones(2)))
            self.hidden[0].flag = True
            type(self).forward = lambda self, x: 1 / 0
            Hoarder.num_calls += 1
            self.head.__class__ = type("Other", (nn.Linear,), {})
        self.memo.table = x
        self.memo.sizes[x.shape[2]] = x.shape[1]
        self.tables[x.shape[1]] = x
        self.counter += 1
        self.recent.append(x.shape[1])
        self.log.append(1)
        self.rng.random()
        self.outputs.append(x)
        return self.head(pooled(x))


def test_whatever_a_forward_can_add():
    model, forward = Hoarder(), Hoarder.forward
    before, chance = state_of(model), model.rng.bit_generator.state
    kept = next(iter(model.conv._forward_hooks.values())).__defaults__[0]
    space = cafenet.trace(model, IMAGE)
    cafenet.verify(space, IMAGE)
    assert kept == []
    with fixed_randomness(0):
        space.run(IMAGE)
    assert len(kept) == 1  # a hook of the user's sees what runs
    with pytest.raises(TraceError):
        cafenet.trace(model, torch.zeros(1, 4, 8, 8))
    assert state_of(model) == before
    assert Hoarder.forward is forward
    assert (Hoarder.tables, Hoarder.num_calls) == ({}, 0)
    assert (model.memo.table, model.memo.sizes, list(model.recent), model.outputs) == (None, {}, [], [])
    assert model.counter.item() == 0
    assert len(model.log) == 2000
    assert "flag" not in vars(model.hidden[0])
    assert model.rng.bit_generator.state == chance


def test_hook_that_removes_itself():
    model = Forward(lambda net, x: net.head(pooled(net.conv(x))), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5))

    def once(module, args, output):
        handle.remove()

    handle = model.conv.register_forward_hook(once)
    cafenet.verify(cafenet.trace(model, IMAGE), IMAGE)
    assert hooks(model) == 1
    model(IMAGE)
    assert hooks(model) == 0


TABLES: dict[int, torch.Tensor] = {}
PLACES = None
SEEN: list[torch.Tensor] = []


@functools.lru_cache
def numbered(size: int) -> torch.Tensor:
    return torch.arange(size).float()


def kept(size: int, device: torch.device) -> torch.Tensor:
    global PLACES
    if PLACES is None:
        PLACES = torch.ones(size, device=device)
    return PLACES


class Remembering(nn.Module):
    """Keeps one table beside its class, one in a decorated function and one under a global name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.hidden(self.conv(x))
        if x.shape[-1] not in TABLES:
            TABLES[x.shape[-1]] = torch.linspace(0, 1, x.shape[-1], device=x.device)
        x = x + TABLES[x.shape[-1]] + numbered(x.shape[-1]).to(x) + kept(x.shape[-1], x.device)
        return self.head(pooled(x))


def test_tables_beside_the_class_are_emptied_again():
    """A meta tensor that stays in one of them would break the user's next forward."""
    model = Remembering()
    space = cafenet.trace(model, IMAGE)
    assert [group.name for group in space.groups] == ["conv", "hidden"]
    assert cafenet.verify(space, IMAGE).ok
    assert (TABLES, PLACES, numbered.cache_info().currsize) == ({}, None, 0)
    model(IMAGE)
    before, place = dict(TABLES), PLACES
    cafenet.trace(model, IMAGE)
    assert TABLES.keys() == before.keys() == {IMAGE.shape[-1]}
    assert TABLES[IMAGE.shape[-1]] is before[IMAGE.shape[-1]]
    assert PLACES is place is not None


def test_a_class_that_a_function_makes():
    tables = {}

    class Local(Remembering):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.hidden(self.conv(x))
            if x.shape[1] not in tables:
                tables[x.shape[1]] = torch.ones(x.shape[-1], device=x.device)
            return self.head(pooled(x * tables[x.shape[1]]))

    model = Local()
    assert len(cafenet.trace(model, IMAGE).groups) == 2
    assert tables == {}


class Caching(Remembering):
    """Keeps results of a method and of a static method with `functools.lru_cache`, as libraries do."""

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def rows(self, size: int, device: torch.device) -> torch.Tensor:
        return torch.ones(size, device=device)

    @staticmethod
    @functools.cache
    def columns(size: int, device: torch.device) -> torch.Tensor:
        return torch.ones(size, 1, device=device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.hidden(self.conv(x))
        return self.head(pooled(x * self.rows(x.shape[3], x.device) * self.columns(x.shape[2], x.device)))


def test_cached_methods_of_a_class():
    model = Caching()
    assert [group.name for group in cafenet.trace(model, IMAGE).groups] == ["conv", "hidden"]
    assert Caching.rows.cache_info().currsize == Caching.columns.cache_info().currsize == 0
    model(IMAGE)


def test_tables_beside_a_function_that_the_model_holds():
    """As a hook or an activation function, which no class names."""
    model = Remembering()
    model.register_forward_hook(lambda module, args, output: SEEN.append(output))
    cafenet.trace(model, IMAGE)
    assert SEEN == []
