"""CafeNet and the bare run of the model in the zoo."""

import time

import torch

import cafenet
from benchmarks.zoo.models import MetaRun, image, is_huge, make_shallow, small_size
from benchmarks.zoo.tool import Facts, Tool

NUM_TRIALS = 2


def shares_left(space: cafenet.WidthSpace) -> Facts:
    """Shares of the FLOPs that are left if every group keeps half of its units (rounded up), and as few as it may."""
    halves = [max(g.min_width, -(-g.channels // g.divisor // 2) * g.divisor) for g in space.groups]
    smallest = [group.min_width for group in space.groups]
    return {key: space.flops(w) / space.flops() for key, w in (("left_at_half", halves), ("smallest", smallest))}


class Bare(Tool):
    """No tool: the model run on meta tensors, and once on real values for comparison."""

    def prepare(self) -> None:
        self._run = MetaRun(self.model, self.example.shape[-1])

    def analyse(self) -> Facts:
        self._run()
        return {}

    def use(self) -> Facts:
        start = time.perf_counter()
        with torch.no_grad():
            self.model(self.example)
        return {"real_forward_seconds": time.perf_counter() - start}


class CafeNet(Tool):
    """Trace, then prove it: random widths, run in place and extracted, with real values."""

    def analyse(self) -> Facts:
        space = cafenet.trace(self.model, self.example, verify=False)
        return {"num_groups": len(space.groups)}

    def use(self) -> Facts:
        start = time.perf_counter()
        space = cafenet.trace(self.model, self.example, verify=True)
        facts: Facts = {
            "verified_trace_seconds": time.perf_counter() - start,
            "num_groups": len(space.groups),
            "searchable_flops_share": space.searchable_flops_share,
            "shallow": is_huge(self.model),
        }
        if not space.groups:
            raise ValueError("no width group was found")
        return facts | shares_left(space) | self._verify()

    def _verify(self) -> Facts:
        """Run the model on real values; `verify` draws its own random weights."""
        if is_huge(self.model):
            make_shallow(self.model)
        small = image(small_size(self.model, self.example.shape[-1]))
        report = cafenet.verify(cafenet.trace(self.model, small), small, trials=NUM_TRIALS)
        if not report.ok:
            raise AssertionError("; ".join(report.problems))
        return {
            "checked_size": small.shape[-1],
            "max_extract_error": report.max_extract_error,
            "max_masked_error": report.max_masked_error,
            "checked_dtype": str(report.dtype).removeprefix("torch."),
        }
