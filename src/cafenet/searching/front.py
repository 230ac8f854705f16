"""The Pareto front of scored widths: those that no other beats in both score and cost."""

from collections.abc import Iterable

from cafenet.searching.store import ScoredWidth


def pareto_front(scored: Iterable[ScoredWidth], cost: str = "flops") -> list[ScoredWidth]:
    """The front, the cheapest first; of one width's scores the exact one counts, and dropped widths do not.

    Smallest example: (100 FLOPs, 80%), (90, 81%), (50, 70%) gives (50, 70%), (90, 81%).
    """
    best: dict[tuple[int, ...], ScoredWidth] = {}
    for each in scored:
        known = best.get(each.taken)
        if each.score.is_complete and (known is None or each.is_exact >= known.is_exact):
            best[each.taken] = each
    front: list[ScoredWidth] = []
    for each in sorted(best.values(), key=lambda each: (each.costs[cost], -each.score.value)):
        if not front or each.score.value > front[-1].score.value:
            front.append(each)
    return front
