"""`paper: true` in a recipe: exactly the paper's algorithm, whatever the defaults are."""

from typing import Any

from cafenet.errors import RecipeError
from cafenet.pipeline.paper import EVOLUTION, RANDOM, SHARING, value_at, with_values
from cafenet.runs.recipe import Recipe

PAPER: dict[str, Any] = (
    SHARING
    | {f"evolution.{name}": value for name, value in EVOLUTION.items()}
    | {f"random.{name}": value for name, value in RANDOM.items()}
    | {"stages.carry_weights": False, "finetune.start": "scratch"}
)
"""The keys of a recipe that the paper decides, with its values."""
ALGORITHMS = ("evolution", "random")
"""The paper's two searches, CafeNet-E and CafeNet-R."""


def as_in_the_paper(recipe: Recipe) -> Recipe:
    """Set what the paper decides, if the recipe asks for it.

    Args:
        recipe: A recipe with `paper` true or false.

    Returns:
        The recipe itself, or with the values of the paper.

    Raises:
        RecipeError: If the recipe asks for the paper's algorithm and for something else at once.
    """
    if not recipe.paper:
        return recipe
    default = Recipe()
    asked = {key: value_at(recipe, key) for key in PAPER}
    problems = [
        f"{key} is {_shown(value)}, but the paper's is {_shown(PAPER[key])}"
        for key, value in asked.items()
        if value not in (PAPER[key], value_at(default, key))
    ]
    algorithms = ALGORITHMS if recipe.algorithms == default.algorithms else recipe.algorithms
    if set(algorithms) - set(ALGORITHMS):
        problems.append(f"algorithms has {', '.join(algorithms)}, but the paper's are {' and '.join(ALGORITHMS)}")
    if problems:
        raise RecipeError(f"paper: {'; '.join(problems)}; leave these keys out, or set paper: false")
    return with_values(recipe, PAPER | {"algorithms": algorithms})


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
