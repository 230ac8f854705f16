"""The files of plain values in a run directory: their names and their required content.

The error of a damaged file names the file, its required content and a remedy (`common/read_files.py`).
"""

from dataclasses import dataclass
from typing import Any

Number = (int, float)
OrNone = type(None)
REMOVE = "remove it, and "
_AGAIN = f"{REMOVE}the same command writes it anew"


@dataclass(frozen=True)
class RunFile:
    """A file of plain values with a known shape.

    A shape is a type (or several), a list of a shape, or a dictionary of the keys that must be there: `{"rows":
    [{"method": str}]}`.
    """

    name: str
    """Name of the file in its directory."""
    holds: str
    """Description of the content, for error messages."""
    shape: Any
    """Shape of the content."""
    remedy: str = _AGAIN
    """Advice for a damaged file, for error messages."""


RECIPE = RunFile(
    "recipe.yaml", "the recipe of a run", {}, "put this run's own recipe in its place, or use another directory"
)
MANIFEST = RunFile(
    "manifest.json",
    "when a run began and how long its steps took",
    {"seconds": dict, "again": {"sentence": str, "command": str}},
)
SPACE = RunFile(
    "space.json",
    "the width groups of a model",
    {"groups": [{"name": str, "layers": list, "channels": int, "bin_size": int, "num_bins": int}], "frozen": list},
)
ENTRIES = RunFile(
    "entries.json",
    "what the methods of a run found",
    {
        "groups": dict,
        "entries": [{"method": str, "budget": str, "channels": (dict, OrNone), "search_score": (*Number, OrNone)}],
    },
)
RESULTS = RunFile(
    "results.json",
    "the table of a run",
    {
        "rows": [
            {
                "method": str,
                "budget": str,
                "flops": Number,
                "params": Number,
                "latency_ms": Number,
                "accuracies": list,
                "search_score": (*Number, OrNone),
                "widths": dict,
            }
        ]
    },
)
DETECTION_RESULTS = RunFile(
    "results.json",
    "the table of a detection run",
    {
        "detectors": [
            {
                "backbone": str,
                "key": str,
                "framework": str,
                "pretraining": str,
                "flops": Number,
                "params": Number,
                "seeds": list,
                "scores": list,
                "per_class": list,
            }
        ],
        "reference": list,
    },
)
EVALUATION = RunFile("evaluation.json", "a model's accuracy on the test set", {"accuracy": Number, "num_examples": int})
DETECTION_EVALUATION = RunFile(
    "evaluation.json",
    "a detector's average precision on the test set",
    {"mAP": (*Number, OrNone), "per_class": dict, "curves": dict},
)
DETECTIONS = RunFile(
    "detections.json",
    "what a detector found",
    [{"image_id": (int, str), "category_id": int, "score": Number, "bbox": list}],
)
SAMPLES = RunFile(
    "samples.json", "images for the report", {"classes": list, "categories": list, "images": [{"boxes": list}]}
)
STAGES = RunFile(
    "stages.json",
    "the stages of a search",
    {"num_stages": int, "alpha": Number, "carry_weights": bool},
    "remove it and give the same stages as before, or use another directory",
)
LATENCIES = RunFile(
    "latencies.json",
    "the latencies that a search began with",
    {"asked": dict, "measured": {"limit_ms": Number, "full_ms": Number}},
    "remove it to measure anew, or use another directory",
)
DIVISOR = RunFile(
    "divisor.json",
    "the steps of the runtime that the bins of a search follow",
    {"asked": dict, "divisor": int},
    "remove it to measure anew, or use another directory",
)
TRAINED = RunFile(
    "trained.json",
    "whether the model of a search came trained",
    {"asked": dict, "is_trained": bool, "sentence": str},
    "remove it to look again",
)
GAIN = RunFile(
    "gain.json",
    "what a search gained",
    {"identity": dict, "gain": {"metric": str, "models": [{"name": str, "score": Number}]}},
    "remove it, and the same call measures anew",
)
START = RunFile(
    "start.json", "what a training began with", dict, "remove its directory to train anew, or use another one"
)
