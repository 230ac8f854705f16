"""Whether the model that a search is given is trained: its score on the validation data against chance.

Chance is a constant answer, and also what fresh copies of the same network reach: where classes differ clearly, random
features alone tell some of them apart. Smallest example: 62% of ten balanced classes is trained, if fresh copies reach
8 to 14%; 65% of two classes is not, if fresh copies reach 35 to 70%.
"""

import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import TRAINED
from cafenet.common.write_files import write_file
from cafenet.errors import ScoringError
from cafenet.modules.digests import digest_of_model
from cafenet.modules.tensors import tensors_of
from cafenet.pipeline.chance import Compared, against_chance
from cafenet.pipeline.job import Job
from cafenet.scoring.examples import Examples, hold_examples, in_content_order
from cafenet.scoring.metrics import in_own_unit, metric_name
from cafenet.scoring.model_score import output_of
from cafenet.supernet.plain_training import initialised

_SHARE = 0.1
"""Smallest share of the way from chance to perfect answers (or of the score itself) at which a model counts as
trained."""
_ERRORS = 3.0
"""Number of standard errors that the score must lie above chance, and above the fresh copies."""
_NUM_FRESH = 6
_MOST_EXAMPLES = 500
_FEW = 8


@dataclass(frozen=True)
class Verdict:
    """Whether a model is trained, and the sentence that says so."""

    is_trained: bool
    """True if the model is trained."""
    sentence: str
    """One line for the user."""


def judge(model: nn.Module, job: Job, place: Path, trained: bool | None) -> Verdict:
    """Find out whether a model is trained, or read what an earlier call in the same directory found out.

    Args:
        model: The model of the search; it is unchanged afterwards.
        job: The data and options of the search.
        place: Directory of the search, which keeps the verdict.
        trained: The user's answer; None looks at the model.

    Returns:
        The verdict.

    Raises:
        ScoringError: If the model's answers are not numbers, unless the user says that it is not trained.
    """
    if trained:
        _expect_numbers(model, job)
    if trained is not None:
        return Verdict(trained, f"The model is {_word(trained)}, as you say (trained={trained}).")
    asked = _asked(model, job)
    before = read_if_there(TRAINED, place)
    if before is not None and before["asked"] == asked:
        return Verdict(before["is_trained"], before["sentence"])
    _expect_numbers(model, job)
    verdict = _looked_at(model, job)
    content = {"asked": asked, "is_trained": verdict.is_trained, "sentence": verdict.sentence}
    write_file(TRAINED, place, content)
    return verdict


def _asked(model: nn.Module, job: Job) -> dict[str, str]:
    """Return everything that a verdict depends on."""
    held = hold_examples(job.val_data, "validation data", num_examples=min(_MOST_EXAMPLES, job.scoring.max_examples))
    loss = job.loss if isinstance(job.loss, str) else "own"
    return {
        "model": digest_of_model(model),
        "validation": held.digest(),
        "metric": metric_name(job.metric),
        "loss": loss,
    }


def _expect_numbers(model: nn.Module, job: Job) -> None:
    """Refuse a model whose answers to a few validation examples are not numbers."""
    held = hold_examples(job.val_data, "validation data", num_examples=_FEW)
    answers = tensors_of(output_of(model, held.batch[0], "validation data"))
    if any(answer.is_floating_point() and bool(answer.isnan().any()) for answer in answers):
        raise ScoringError(
            "the outputs of the model must be numbers, but some of the validation data are nan; check its weights, its "
            "statistics and the data (trained=False begins with the model as one that is not trained)"
        )


def _looked_at(model: nn.Module, job: Job) -> Verdict:
    """Compare the model's score on some validation examples with chance and with fresh copies of it."""
    most = min(_MOST_EXAMPLES, job.scoring.max_examples)
    held = in_content_order(hold_examples(job.val_data, "validation data", num_examples=most))
    found = against_chance(model, held, job)
    is_trained = found.score - found.chance >= max(_SHARE * found.scale, _ERRORS * found.error, 1e-9)
    if is_trained:
        is_trained = found.score > _reach_of_fresh_copies(model, held, job)
    return Verdict(
        is_trained,
        f"The model is {_word(is_trained)}: {found.metric} {_shown(found, found.score)} on {held.size:,} validation "
        f"examples, chance is {_shown(found, found.chance)}; trained={not is_trained} overrides.",
    )


def _shown(found: Compared, score: float) -> str:
    """Return a score in the unit that people know it in."""
    is_share = found.metric in ("accuracy", "token_accuracy")
    return f"{score:.1%}" if is_share else f"{in_own_unit(found.metric, score):.4g}"


def _reach_of_fresh_copies(model: nn.Module, held: Examples, job: Job) -> float:
    """Return the score up to which a fresh network is to be expected; minus infinity if none can be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parameters that nothing draws anew keep their values
        copies = [initialised(model, seed) for seed in range(_NUM_FRESH)]
    if digest_of_model(copies[0]) == digest_of_model(copies[1]):  # no layer can draw its weights anew
        return float("-inf")
    scores = [against_chance(fresh, held, job).score for fresh in copies]
    return max(*scores, statistics.mean(scores) + _ERRORS * statistics.stdev(scores))


def _word(is_trained: bool) -> str:
    return "trained" if is_trained else "not trained"
