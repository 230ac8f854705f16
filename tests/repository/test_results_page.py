"""docs/results.md is what its tool makes of the small files beside it, and the tool reads the runs of today."""

import json
from pathlib import Path

import yaml

from tools.docs import results_page as tool

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_tool_makes():
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == tool.page(ROOT / "docs" / "results")


def test_a_run_becomes_a_section(tmp_path):
    """60.0 and 62.0 are 61.00 ± 1.41: each is 1 from the mean, and 2 / (2 - 1) has the root 1.41. 90 s are 1.5 min."""
    row = {"flops": 2_000_000, "params": 30_000, "latency_ms": 1.0, "search_score": None, "widths": {}}
    rows = [
        {"method": "Original", "budget": "", "accuracies": [0.60, 0.62], **row},
        {"method": "CafeNet-T", "budget": "50%", "accuracies": [0.60, 0.62], **row, "flops": 1_000_000},
    ]
    manifest = {
        "seconds": {"train": 60.0, "search": 30.0},
        "again": {"sentence": "", "command": ""},
        "command": ["/some/bin/cafenet", "run", "small", "--data.source", "npz:../shared/data/x", "--output", "runs/x"],
        "hardware": {"threads": 2, "machine": "x86_64"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"description": "A small run"}))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "results.json").write_text(json.dumps({"rows": rows}))
    section = tool.section(tool.summary(tmp_path)).splitlines()
    assert section[0] == "## A small run"
    assert "cafenet run small --data.source npz:data/x" in section
    assert "| Original | - | 2.00M | 30.00K | 61.00 ± 1.41% |" in section
    assert "| CafeNet-T | 50% | 1.00M | 30.00K | 61.00 ± 1.41% |" in section
    assert section[-1] == "2 seeds; 1.5 min in all on 2 threads of a shared x86_64 CPU."
