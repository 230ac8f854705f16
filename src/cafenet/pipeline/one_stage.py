"""One stage: a supernet is trained and searched for its budgets."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from cafenet.common.job_progress import next_part
from cafenet.common.run_places import JOURNAL, LATENCY, result_name
from cafenet.pipeline.job import Job
from cafenet.pipeline.stage_plan import Stage
from cafenet.scoring.examples import hold_examples
from cafenet.scoring.metrics import metric_name
from cafenet.scoring.scorer import Scorer
from cafenet.searching.budget import COUNTED, Budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.identity import supernet_identity
from cafenet.searching.result import FoundWidths, is_result_of, read_result, write_result
from cafenet.searching.width_search import WidthSearch
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins, build_supernet
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet

_MOST_SHARES = (0.2, 0.9)
_FINGERPRINT = 256
"""Number of examples by which validation data are recognised."""


def check_feasible(space: WidthSpace, job: Job, stage: Stage) -> None:
    """Check that some width meets a stage's budget. Caps on latency and file size are left out, since they need
    measurements.

    Args:
        space: The width space of the stage.
        job: The data and options of the stage.
        stage: The stage with its budget.

    Raises:
        BudgetError: If the smallest subnet exceeds a cap.
    """
    caps = tuple(cap for cap in stage.budget.caps if cap.cost in COUNTED)
    bins = build_bins(space, job.supernet, stage.beta)
    costs = {"flops": space.flops, "params": space.params}
    Feasible(bins, costs, Budget(stage.budget.text, caps), job.search.band)


def run_stage(
    weights: nn.Module, space: WidthSpace, stage: Stage, job: Job, directory: Path
) -> tuple[Supernet, FoundWidths]:
    """Run one stage: train its supernet and search it for the budget of the stage.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the stage.
        stage: The stage with its budget and bins.
        job: The data and options of the stage.
        directory: Directory of the stage.

    Returns:
        The trained supernet and the widths found.
    """
    supernet, (result,) = run_supernet(weights, space, [stage.budget], job, directory, beta=stage.beta)
    return supernet, result


def run_supernet(
    weights: nn.Module,
    space: WidthSpace,
    budgets: Sequence[Budget],
    job: Job,
    directory: Path,
    *,
    beta: float | None = None,
) -> tuple[Supernet, list[FoundWidths]]:
    """Train one supernet and search it for every budget, or read the results of an earlier call.

    If the options of the search have changed, the search starts again. It reuses scores that the study already holds
    and refuses a study of another supernet or of other data. If the results are finished, only a sample of the data is
    read.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the supernet.
        budgets: The budgets to search for.
        job: The data and options of the search.
        directory: Directory of the supernet, its study and the results.
        beta: Replaces the `beta` of the supernet's options in later stages of a search.

    Returns:
        The trained supernet, and the widths found in the order of the budgets.
    """
    with next_part():
        supernet = train_stage(weights, space, budgets, job, directory, beta=beta)
    return supernet, search_trained(supernet, budgets, job, directory)


def search_trained(supernet: Supernet, budgets: Sequence[Budget], job: Job, directory: Path) -> list[FoundWidths]:
    """Search a trained supernet for every budget, or read the results of an earlier call.

    Args:
        supernet: The trained supernet.
        budgets: The budgets to search for.
        job: The data and options of the search.
        directory: Directory of the study and the results.

    Returns:
        The widths found in the order of the budgets.
    """
    files = {budget.text: directory / result_name(job.algorithm.name, budget.text) for budget in budgets}
    asked = _asked(job, supernet)
    missing = [budget for budget in budgets if not is_result_of(files[budget.text], asked)]
    with next_part():
        found = _searched(supernet, missing, job, directory) if missing else []
    for budget, result in zip(missing, found, strict=True):
        write_result(result, files[budget.text], asked)
    return [read_result(files[budget.text]) for budget in budgets]


def _searched(supernet: Supernet, budgets: Sequence[Budget], job: Job, directory: Path) -> list[FoundWidths]:
    """Search a trained supernet for budgets."""
    scorer = Scorer(supernet, job.train_data, job.val_data, metric=job.metric, loss=job.loss, config=job.scoring)
    file = directory / LATENCY
    search = WidthSearch(scorer, job.algorithm, job.search, job.latency, latency_file=file, full=job.full)
    if job.shared is None:
        return search.run(budgets, directory / JOURNAL, quiet=job.quiet)
    study = job.shared.study(directory)
    with job.shared.open_for(directory, budgets):
        found = search.run(budgets, job.shared.storage, study=study, quiet=job.quiet)
    search.copy_scores(job.shared.storage, study, directory / JOURNAL)
    return found


def _asked(job: Job, supernet: Supernet) -> dict[str, Any]:
    """Return the options, the supernet and the data that a result depends on, as plain JSON values."""
    search = {name: value for name, value in asdict(job.search).items() if name != "search_workers"}
    content = {
        "algorithm": repr(job.algorithm),
        "search": search,
        "scoring": asdict(job.scoring),
        "latency": job.latency.made_with(),
        "metric": metric_name(job.metric),
        "supernet": supernet_identity(supernet),
        "validation": hold_examples(job.val_data, "validation data", num_examples=_FINGERPRINT).digest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, default=repr))
    return plain


def train_stage(
    weights: nn.Module,
    space: WidthSpace,
    budgets: Sequence[Budget],
    job: Job,
    directory: Path,
    *,
    beta: float | None = None,
) -> Supernet:
    """Return the trained supernet of a stage. The training continues from its checkpoint, if there is one.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the supernet.
        budgets: The budgets that it will be searched for. They determine the band of FLOPs if it is "budgets".
        job: The data and options of the search.
        directory: Directory of the checkpoint.
        beta: Replaces the `beta` of the supernet's options in later stages of a search.

    Returns:
        The trained supernet.
    """
    supernet = build_supernet(weights, space, job.supernet, beta=beta, seed=job.training.seed)
    sampling = job.sampling
    if sampling.flops_band == "budgets":
        sampling = replace(sampling, flops_band=band_about(budgets, space))
    train_supernet(
        supernet,
        job.train_data,
        job.training,
        sampling=sampling,
        loss=job.loss,
        teacher=None if sampling.distill is None else job.teacher,
        directory=directory,
        quiet=job.quiet,
        title=f"supernet of {directory.name}",
    )
    return supernet


def band_about(budgets: Sequence[Budget], space: WidthSpace) -> tuple[float, float]:
    """Return the shares of FLOPs from 0.7 of the smallest budget to 1.3 of the largest: half gives (0.35, 0.65).

    A share of the parameters counts as the same share of FLOPs. Caps on latency are left out, because the band must be
    the same when the training is continued.

    Args:
        budgets: The budgets that the supernet will be searched for.
        space: The width space of the supernet.

    Returns:
        The smallest and the largest share; (0.2, 0.9) if some budget caps only the latency.
    """
    full = {"flops": float(space.flops()), "params": float(space.params())}
    shares = [
        min(1.0, *(cap.limit / full[cap.cost] for cap in budget.caps if cap.cost in full))
        for budget in budgets
        if any(cap.cost in full for cap in budget.caps)
    ]
    return (0.7 * min(shares), min(1.3 * max(shares), 1.0)) if len(shares) == len(budgets) else _MOST_SHARES
