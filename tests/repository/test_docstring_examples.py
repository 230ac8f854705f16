"""The examples in the docstrings of public names run and print what they say, and the public API is documented."""

import doctest
import pkgutil
import runpy
from pathlib import Path

import pytest

import cafenet

SPACE = [
    *("width_group.Slot", "width_group.WidthGroup", "width_group.Frozen", "width_space.WidthSpace"),
    *("width_space.WidthSpace.flops", "width_space.WidthSpace.widths_dict", "width_space.WidthSpace.run"),
    *("width_space.WidthSpace.extract", "bins.Bins", "bins.flops_sensitive_bins", "bins.uniform_bins"),
    *("verification.verify", "slim_file.save", "slim_file.load", "export.export"),
    "importance.sort_by_importance",
]
TRAINING = [
    *("config.TrainConfig", "distillation.DistillConfig", "optimizers.OptimizerConfig", "optimizers.ScheduleConfig"),
]
SUPERNET = [
    *("build.SupernetConfig", "candidate_choice.Exact", "candidate_choice.Race", "plain_training.train_model"),
    *("sampling.SamplingConfig", "sharing.LocallyFree", "sharing.Bilateral", "supernet.Supernet"),
    "train.train_supernet",
]
SEARCHING = [
    *("algorithms.evolution.Evolution", "algorithms.greedy.Greedy", "algorithms.random_search.RandomSearch"),
    *("algorithms.trend.Trend", "latency.measure.LatencyConfig", "latency.measure.measure_latency"),
    *("latency.measure.measure_latencies", "latency.profile.profile_latency"),
    *("result.FoundWidths", "search_config.SearchConfig", "width_search.search_widths"),
]
DATA = [
    *("augment.Augmentation", "fashion.fashion_mnist", "load.load_data", "loaders.train_loader"),
    *("loaders.eval_loader", "split.hold_out"),
]
PIPELINE = [
    *("own_loop.Supernet", "own_loop.Supernet.search"),
    *(
        "search.search",
        "options.SearchOptions",
        "result.SearchResult",
        "result.SearchResults",
        "stage_plan.StagesConfig",
    ),
]
NAMES = [
    *("errors.CafeNetError", "common.statistics.PairedDifference", "common.statistics.compare_paired"),
    *(f"space.{name}" for name in SPACE),
    *("tracing.tracer.trace", "runtimes.file_model.FileModel"),
    *(f"training.{name}" for name in TRAINING),
    *(f"data.{name}" for name in DATA),
    "models.load.load_model",
    "modules.freed_attention.free_heads",
    *(f"supernet.{name}" for name in SUPERNET),
    *("scoring.evaluation.evaluate", "scoring.scorer.ScoringConfig"),
    *(f"searching.{name}" for name in SEARCHING),
    *(f"pipeline.{name}" for name in PIPELINE),
]
PACKAGES = sorted(path.name for path in Path(cafenet.__file__).parent.iterdir() if (path / "__init__.py").exists())
COVERAGE = Path(__file__).parents[2] / "tools" / "docs" / "docstring_coverage.py"


def documented(name: str) -> object:
    """The object `WidthSpace.run` in the module `cafenet.space.width_space` for `space.width_space.WidthSpace.run`."""
    return pkgutil.resolve_name(f"cafenet.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_prints_what_it_says(name):
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(documented(name), name, globs={})
    assert found.examples
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=output.append)
    assert result.failed == 0, "".join(output)


def test_every_name_at_the_top_has_an_example():
    assert {name.rpartition(".")[2] for name in NAMES} >= set(cafenet.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_public_parameters_are_documented(package):
    coverage = runpy.run_path(str(COVERAGE))
    definitions = [each for each in coverage["read_definitions"]() if each.package == package]
    found = coverage["measure"](definitions)
    assert found.num_definitions
    assert found.docstring_ratio == 1.0
    assert found.parameter_ratio >= 0.95


def test_documented_parameters_are_counted_by_hand(tmp_path):
    (tmp_path / "doubles.py").write_text(
        """
from dataclasses import dataclass

def double(value): "Doubles."

def triple(value, *others, times=3):
    '''Triples.

    Args:
        value: The number,
            in two lines.
        *others: More numbers.

    Returns:
        times: Not an argument here.
    '''

@dataclass
class Pair:
    "Two numbers."
    first: int
    "The first number."
    second: int
    _hidden: int = 0

def _private(value): ...
"""
    )
    coverage = runpy.run_path(str(COVERAGE))
    found = {each.place.split()[1]: each for each in coverage["read_definitions"](tmp_path)}
    assert list(found) == ["double", "triple", "Pair"]
    assert [found[name].documented for name in found] == [(), ("value", "others"), ("first",)]
    assert [found[name].undocumented for name in found] == [("value",), ("times",), ("second",)]
    assert coverage["measure"](list(found.values())) == coverage["Coverage"](3, 3, 6, 3)
