"""The scale of attention, which must stay that of the full model where the sizes of heads vary.

Smallest example: `F.scaled_dot_product_attention` divides the scores by the root of the size of a head, 8 for 64
features. A head that keeps 16 of them would have its scores divided by 4. The check run sees that this factor is
another one than in the trace. The queries are then multiplied by the root of the share that is kept, here 1/2, in the
weights and biases that make them, so that the scores are divided by 8 as before. A scale that is stored, or passed by
the code, does not change, and nothing is multiplied.

A factor that changes in another way freezes the sizes of the heads.
"""

import math
from collections.abc import Callable, Sequence

from cafenet.tracing.atoms import AtomArray, Atoms, ScaleFold
from cafenet.tracing.calls import Record
from cafenet.tracing.recording import Run, Scores

_REASON = "sets a factor that the code computes from the size of a head, and that nothing can make up for"


def settle_scales(
    atoms: Atoms, run: Run, changed: Sequence[tuple[Record, float | None]], share_of: Callable[[AtomArray], float]
) -> bool:
    """Makes up for the factors that differ from those of the trace, or freezes the sizes of heads that they depend on.

    Args:
        atoms: Everything that the rules have recorded; folds and freezes are added to it.
        run: The run that was repeated.
        changed: The ops whose factors differ, with the ratio to before.
        share_of: Function that gives the share of a dimension that the check run keeps.

    Returns:
        Whether something was frozen, so that the check run must be repeated.
    """
    ratios: dict[str, list[float | None]] = {}
    for record, ratio in changed:
        ratios.setdefault(record.path, []).append(ratio)
    if not ratios:
        return False
    known = {fold.features.tobytes() + fold.atoms.tobytes() for fold in atoms.scales}
    num_freezes = len(atoms.freezes)
    for path, found in ratios.items():
        here = [scores for scores in run.scores if scores.path == path]
        if not here:  # not in a module with attention: it is not known whose size this is
            here = [scores for scores in run.scores if share_of(scores.features) < 1]
            found = [None]
        if not _is_scale(found, here, share_of):
            for scores in here:
                atoms.freeze(scores.features, _REASON, path)
            continue
        for scores in here:
            if scores.queries is None:
                atoms.freeze(scores.features, _REASON, path)
            elif (key := scores.features.tobytes() + scores.queries.tobytes()) not in known:
                known.add(key)
                atoms.scales.append(ScaleFold(scores.queries, scores.features))
    return len(atoms.freezes) > num_freezes


def _is_scale(found: Sequence[float | None], here: Sequence[Scores], share_of: Callable[[AtomArray], float]) -> bool:
    """Whether the factors of a module have grown by the root of the size of a head for each product with queries."""
    if any(ratio is None for ratio in found):
        return False
    expected = math.prod(share_of(scores.features) ** -0.5 for scores in here)
    return math.isclose(math.prod(ratio or 0.0 for ratio in found), expected, rel_tol=1e-6)
