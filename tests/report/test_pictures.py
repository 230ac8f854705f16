"""A notebook shows the report's figures: the same widths, the same dots."""

import re
from base64 import b64decode
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import cafenet
from cafenet.errors import RunFileError
from cafenet.report.figure_html import standalone
from cafenet.report.figures import all_figures
from cafenet.report.run_records import read_run
from tests.helpers.small_search import TRAIN, VALIDATION
from tests.helpers.small_training import batch, built

FEW = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4), num_finalists=1)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    supernet = cafenet.Supernet(built(), batch()[0], budget=["75%", "50%"])
    place = tmp_path_factory.mktemp("found")
    return supernet.search(TRAIN, VALIDATION, options=FEW, trained=False, directory=place, quiet=True)


def texts(svg: str) -> list[str]:
    """What stands in a figure; that it can be parsed shows that it is well-formed."""
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_layer_stands_with_its_width_before_and_after(results):
    result = results["50%"]
    shown = texts(result.plot_widths().svg)
    assert shown == [
        text for name, full in result.space.full_widths.items() for text in (name, f"{full} → {result.widths[name]}")
    ]


def test_widths_need_no_directory(results):
    result = results["50%"]
    assert replace(result, directory=None).plot_widths() == result.plot_widths()


def test_the_search_is_that_of_the_report_with_one_budget(results):
    one, other = (each.plot_search() for each in results)
    assert "75%" in one.svg
    assert "50%" not in one.svg.replace("-50%", "")
    assert "CafeNet" in "".join(texts(other.svg))
    both = standalone(all_figures(read_run(results[0].directory))["accuracy-flops"])
    assert num_dots(one.svg) > 1 < num_dots(other.svg)
    assert num_dots(both) == num_dots(one.svg) + num_dots(other.svg)


def num_dots(svg: str) -> int:
    """Number of dots of a figure."""
    return svg.count("<circle")


def test_a_notebook_gets_an_image_and_a_file_the_same_svg(results, tmp_path):
    picture = results["50%"].plot_widths()
    html = picture._repr_html_()
    image = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert b64decode(image[1]).decode() == picture._repr_svg_() == picture.svg
    assert "<style" not in html  # which would change the page around it
    picture.save(tmp_path / "figures" / "widths.svg")
    assert (tmp_path / "figures" / "widths.svg").read_text() == picture.svg


def test_a_plot_of_a_search_without_a_directory_names_the_remedy(results):
    with pytest.raises(RunFileError, match=r"none; give the search a directory="):
        replace(results["50%"], directory=None).plot_search()


def test_a_plot_of_a_search_without_scores_says_so(results, tmp_path):
    place = tmp_path / "copy"
    place.mkdir()
    for name in ("recipe.yaml", "manifest.json", "space.json", "entries.json"):
        (place / name).write_bytes((results[0].directory / name).read_bytes())
    with pytest.raises(RunFileError, match=r"needs scored widths, but .*copy holds none for 50%"):
        replace(results["50%"], directory=place).plot_search()
