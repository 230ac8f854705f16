"""The page's section about cheap freedom, from made-up supernets whose order of widths is known."""

import numpy as np

from benchmarks.common.results_file import Results
from benchmarks.ranking.freedom import section
from benchmarks.ranking.ranking import Truth

RNG = np.random.default_rng(0)
LOGARITHMS = np.log(RNG.uniform(0.2, 1, (40, 2)))
LABELS = 60 + LOGARITHMS @ [4.0, 1.0]
TRUTH = Truth(np.arange(40), LABELS, np.linspace(0.4, 0.6, 40), LOGARITHMS, 1.0, 2)


def row(scores, chosen):
    names = ("best accuracy", "mean accuracy", "leftmost accuracy")
    return {"chosen": chosen, **dict.fromkeys(names, scores.tolist()), "mean loss": (-scores).tolist()}


def test_trends_are_compared_with_the_fixed_sharing_by_seed(tmp_path):
    results = Results(tmp_path / "results.json")
    assert section(results, {"plain": TRUTH}) == []
    for seed in ("0", "1"):
        results.add("freedom plain", "fixed", row(60 + LOGARITHMS @ [1.0, 4.0 + int(seed)], {}), seed)
        results.add("freedom plain", "r=1 race", row(LABELS, {"0": 6, "1": 3, "2": 1}), seed)
    text = "\n".join(section(results, {"plain": TRUTH}))
    fixed, race = (line for line in text.splitlines() if line.endswith("|") and "mean accuracy" in line)
    assert float(race.split("|")[3]) > 0.99 > float(fixed.split("|")[3]) + 0.1
    assert "**+" in race  # clearly ahead of the fixed sharing
    assert "Chosen by min-min: 60, 30, 10% of 20 choices." in text
