"""The directory of a recipe: it holds one recipe, and perhaps with more seeds the next start continues it."""

from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import RECIPE
from cafenet.common.run_places import expect_maker
from cafenet.errors import RecipeError, RunFileError
from cafenet.pipeline.run_directory import Again, RunDirectory
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import as_document, to_yaml
from cafenet.training.checkpoint import differences

WITHOUT_EFFECT = ("description", "reference")
"""Keys of a recipe that no result depends on."""


class RecipeDirectory(RunDirectory):
    """The run directory of a recipe; another recipe is refused."""

    def __init__(
        self, path: Path, recipe: Recipe, command: list[str] | None = None, *, maker: str = "cafenet run"
    ) -> None:
        """Create the directory, or check that it belongs to the same recipe.

        Args:
            path: The directory.
            recipe: The recipe of the run.
            command: The command line for the manifest, by default that of this process.
            maker: The command that the recipe is for.

        Raises:
            RecipeError: If the directory cannot be written, or holds a run of another recipe.
            RunFileError: If the recipe in the directory is damaged, or files have another format.
        """
        again = Again("Save the recipe below as recipe.yaml", f"{maker} recipe.yaml --output {{name}}")
        super().__init__(path, seed=recipe.seed, again=again, command=command)
        self._maker = maker
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._check_recipe(recipe)
            self.keep_recipe(to_yaml(recipe))
        except OSError as error:
            raise RecipeError(
                f"the run directory {path} must be writable, but: {error.strerror or error}; give another --output"
            ) from error

    def check_data(self, digest: str) -> None:
        """Record which training data the run is about; refuse data that everything in the directory is not about.

        Supernets, trials and channels found all depend on them, so none of these files needs a digest of its own. If
        nothing was trained yet, other data may take their place: a damaged image was replaced, for instance.

        Args:
            digest: Digest of the training and validation data.

        Raises:
            RunFileError: If the run began with other data.
        """
        before = self.manifest().get("train_data")
        if before not in (None, digest) and any(self.path.rglob("*.pt")):
            raise RunFileError(
                f"{self.path} must hold a run on the same training data, but they have changed since it began (digest "
                f"{digest}, was {before}); give another directory with --output, or put the earlier data in their place"
            )
        self.note(train_data=digest)

    def _check_recipe(self, recipe: Recipe) -> None:
        """Refuse to continue a run of another recipe."""
        before = read_if_there(RECIPE, self.path)
        if before is None:
            return
        expect_maker(self.path, before, self._maker)
        now = as_document(recipe)
        missing = [key for key in now if key not in before]
        if missing:  # a truncated YAML file is often valid YAML
            raise RunFileError(
                f"{self.path / RECIPE.name} must hold {RECIPE.holds}, but it has no {', '.join(missing)}; "
                f"{RECIPE.remedy}"
            )
        for document in (before, now):
            for key in WITHOUT_EFFECT:
                document.pop(key, None)
        has_more_seeds = _take_over_seeds(before, now)
        changed = differences(before, now)
        if changed:
            details = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
            raise RecipeError(
                f"{self.path} holds a run of another recipe ({details}); give another directory with --output, or "
                "undo the change to continue this run"
            )
        if has_more_seeds:
            self.note(finished=None)


def _take_over_seeds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether `now` only adds seeds of final trainings to `before`, which is the same run; then make
    both equal."""
    old, new = (document.get("finetune", document) for document in (before, now))
    if not isinstance(old, dict) or not set(old.get("seeds", ())) < set(new.get("seeds", ())):
        return False
    old["seeds"] = new["seeds"]
    return True
