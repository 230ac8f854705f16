"""The notebooks run from top to bottom, and show the report's figures."""

import importlib.util
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"own_loop": "lightning", "transformer": "transformers"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures(path, tmp_path):
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if path.stem in NEEDS and importlib.util.find_spec(NEEDS[path.stem]) is None:
        pytest.skip(f"{NEEDS[path.stem]} is not installed")
    notebook = nbformat.read(path, as_version=4)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    plots = [cell for cell in cells if cell.source.startswith("result.plot_")]
    assert len(plots) >= 2
    for cell in plots:
        shown = cell.outputs[-1]["data"]
        assert shown["image/svg+xml"].startswith("<svg")
        assert "data:image/svg+xml;base64," in shown["text/html"]
    results = [cell for cell in cells if cell.source.endswith("\nresult")]
    assert results
    assert all("Uniform" in cell.outputs[-1]["data"]["text/html"] or path.stem == "own_loop" for cell in results)


def test_the_three_notebooks_are_kept_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    assert [path.stem for path in NOTEBOOKS] == ["first_search", "own_loop", "transformer"]
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), path.name
