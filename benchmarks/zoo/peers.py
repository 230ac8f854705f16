"""The peers in the zoo, each used as its own documentation shows.

Torch-Pruning: its README ("How to scan all groups", "High-level Pruners": `BasePruner`, half of the channels, the
classifier ignored) and its examples for torchvision and timm models (ViT: `round_to` the heads and set `hidden_dim`;
timm: pass `num_heads` and set it, `head_dim`, `attn_dim` and `Scale.shape` afterwards; no fused attention).
ModelOpt: `convert` to the `fastnas` search space with its default configuration, the smallest subnet, `export`.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo.models import image, num_params, small_size
from benchmarks.zoo.tool import Facts, Tool

NUM_CLASSES = 1000


def _run_small(model: nn.Module, example: Tensor, num_params_before: int) -> Facts:
    """Run the narrower model; that it is narrower is part of the claim."""
    kept = num_params(model) / num_params_before
    if kept == 1:
        raise ValueError("nothing was pruned")
    with torch.no_grad():
        output = model(example)
    if tuple(output.shape) != (1, NUM_CLASSES):
        raise ValueError(f"the output must be [1, {NUM_CLASSES}], but is {list(output.shape)}")
    return {"params_kept_share": kept}


class TorchPruning(Tool):
    """Build the dependency graph and list all groups; then prune half of every group."""

    environment = {"TIMM_FUSED_ATTN": "0"}  # noqa: RUF012 - its tracing needs attention in single ops

    def analyse(self) -> Facts:
        import torch_pruning as tp

        graph = tp.DependencyGraph().build_dependency(self.model, example_inputs=self.example)
        groups = list(graph.get_all_groups(self._classifiers(), root_module_types=[nn.Conv2d, nn.Linear]))
        return {"num_groups": len(groups)}

    def use(self) -> Facts:
        import torch_pruning as tp

        small = image(small_size(self.model, self.example.shape[-1]))
        before = num_params(self.model)
        modules: list[Any] = list(self.model.modules())
        heads = {
            module.qkv: module.num_heads
            for module in modules
            if hasattr(module, "qkv") and hasattr(module, "num_heads")
        }
        pruner = tp.pruner.BasePruner(
            self.model,
            self.example,
            importance=tp.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=0.5,
            ignored_layers=self._classifiers(),
            round_to=self._vit_heads(),
            num_heads=heads,
        )
        pruner.step()
        self._update_attributes(pruner.num_heads)
        return _run_small(self.model, small, before)

    def _classifiers(self) -> list[nn.Module]:
        """The layers that give the class scores, auxiliary ones too."""
        linears = [m for m in self.model.modules() if isinstance(m, nn.Linear) and m.out_features == NUM_CLASSES]
        convs = [m for m in self.model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == NUM_CLASSES]
        return [*linears, *convs]

    def _vit_heads(self) -> int | None:
        encoder: Any = getattr(self.model, "encoder", None)
        return None if encoder is None else int(encoder.layers[0].num_heads)

    def _update_attributes(self, heads: dict[nn.Module, int]) -> None:
        """Sizes that these models keep as attributes, which Torch-Pruning leaves to the user."""
        if self._vit_heads() is not None:
            vit: Any = self.model
            vit.hidden_dim = vit.conv_proj.out_channels
        module: Any
        for module in self.model.modules():
            if getattr(module, "qkv", None) in heads:
                module.num_heads = heads[module.qkv]
                module.head_dim = module.qkv.out_features // (3 * module.num_heads)
                if hasattr(module, "attn_dim"):
                    module.attn_dim = module.num_heads * module.head_dim
            if hasattr(module, "scale") and isinstance(getattr(module, "shape", None), tuple):  # timm's metaformers
                module.shape = (module.scale.numel(), *module.shape[1:])


class ModelOpt(Tool):
    """Convert to the FastNAS search space; then take its smallest subnet."""

    def prepare(self) -> None:
        self._copy = copy.deepcopy(self.model)  # it is converted in place

    def analyse(self) -> Facts:
        import modelopt.torch.nas as mtn

        self._space = mtn.convert(self._copy, mode="fastnas")
        return {}

    def use(self) -> Facts:
        import modelopt.torch.nas as mtn
        from modelopt.torch.opt.utils import named_hparams

        num_widths = len(dict(named_hparams(self._space, configurable=True)))
        small = image(small_size(self.model, self.example.shape[-1]))
        mtn.sample(self._space, sample_func=min)
        slim = mtn.export(self._space).eval()
        return {"num_groups": num_widths} | _run_small(slim, small, num_params(self.model))
