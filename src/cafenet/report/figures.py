"""All figures of a run, in the order of its page."""

from collections.abc import Sequence

from cafenet.report.cost_chart import cost_figure
from cafenet.report.detail_charts import detail_figures
from cafenet.report.kinds import is_own, kind_of
from cafenet.report.models import Model, models_of
from cafenet.report.plot import Figure
from cafenet.report.run_records import RunRecord
from cafenet.report.search_charts import search_figures
from cafenet.report.training_charts import training_figures
from cafenet.report.width_charts import width_figures


def all_figures(run: RunRecord) -> dict[str, Figure]:
    """Draw every figure for which the run has data.

    Args:
        run: The records of the run.

    Returns:
        The figures by name: first those that stand open, then those that are folded under "Details".
    """
    models = models_of(run)
    shown: Sequence[Model] = _found(run) if models is None else models.models
    made = {} if models is None or not models.own else {"cost": cost_figure(models)}
    made |= width_figures(run, shown) | search_figures(run) | training_figures(run) | detail_figures(run)
    return dict(sorted(made.items(), key=lambda each: each[1].is_detail))


def _found(run: RunRecord) -> list[Model]:
    """Return the widths that a search found, as models that are not trained yet."""
    return [
        Model(
            each["method"],
            kind_of(each["method"]),
            each["budget"],
            0,
            0,
            0.0,
            None,
            None,
            (),
            {name: len(kept) for name, kept in each["channels"].items()},
        )
        for each in run.entries
        if each["channels"] and (is_own(each["method"]) or each["method"] == "Uniform")
    ]
