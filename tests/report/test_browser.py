"""Pages in headless Chromium: drawn without an error, answering to the pointer, and fit for a phone."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cafenet.report.comparison import read_comparison
from cafenet.report.comparison_page import comparison_html
from cafenet.report.run_page import report_html
from tests.helpers.pages import made_up_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = (Path(__file__).parent / "probe.html").read_text()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def opened(page, place, *flags):
    """What the probe finds in a page, and what Chromium wrote to its console."""
    source = place / "probe.html"
    source.write_text(PROBE.replace("PAGE", html.escape(page)))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom", *flags]
    done = subprocess.run(
        [*command, f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=20000", source.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    assert found.group(1) != "", done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found.group(1))), console


LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
SMALLEST_TEXT, TEXT_CONTRAST, MARK_CONTRAST = 11, 4.5, 3
"""Pixels, and the contrasts that WCAG 2 asks for (AA)."""


def bad_texts(found):
    """Texts that are too small, too pale or off the screen."""
    return [
        each
        for each in found["texts"]
        if each["size"] < SMALLEST_TEXT or each["contrast"] < TEXT_CONTRAST or each["outside"] > 1
    ]


def test_the_page_of_a_run(finished, tmp_path):
    found, console = opened((finished / "report.html").read_text(), tmp_path)
    assert console == []
    assert len(found["sizes"]) == 10
    assert all(width > 250 and height > 20 and shapes > 1 for width, height, shapes in found["sizes"])
    assert re.match(r"\d+\.\d\d at [\d,]+ FLOPs\n0 \d+, 3 \d+$", found["dot"])
    assert re.match(r"0: \d+ of 8 channels; Uniform keeps \d+$", found["bar"])
    assert re.match(r"0: 8 to \d+ channels$", found["network"])
    assert found["nothing"] is None
    before, hidden, after = found["legend"]
    assert all(before)
    assert not any(hidden)
    assert after == before
    assert found["pressed"] == "true"
    assert found["scroll"] <= 390


@pytest.mark.parametrize(("scheme", "paper"), [(LIGHT, "rgb(251, 250, 248)"), (DARK, "rgb(20, 22, 26)")])
def test_text_is_readable_on_a_phone_in_light_and_dark(finished, tmp_path, scheme, paper):
    found, _ = opened((finished / "report.html").read_text(), tmp_path, scheme)
    assert found["paper"] == paper
    assert len(found["texts"]) > 100
    assert bad_texts(found) == []
    assert {each["kind"].split(" ")[-1] for each in found["marks"]} >= {"square", "dot", "ring", "triangle"}
    assert [each for each in found["marks"] if each["contrast"] < MARK_CONTRAST] == []


def test_marks_are_reached_by_keyboard(finished, tmp_path):
    """Tab goes from chart to chart, arrows from mark to mark, Escape ends a tip; what has the focus is seen."""
    found, _ = opened((finished / "report.html").read_text(), tmp_path, LIGHT)
    first, second, third, again, ended = found["keyboard"]
    assert first != second != third
    assert again == second
    assert all(" FLOPs" in each for each in (first, second, third))
    assert ended is None
    assert max(found["stops"]) == 1
    assert sum(found["stops"]) >= 7
    assert found["focus"] == ["rgb(10, 98, 176)", 3]


def test_the_page_of_a_comparison(finished, tmp_path):
    for name in ("other", "a-rather-long-name-of-a-run-that-nobody-would-give-but-somebody-does"):
        shutil.copytree(finished, tmp_path / name)
    runs = [finished, *(path for path in tmp_path.iterdir() if path.is_dir())]
    for scheme in (LIGHT, DARK):
        found, console = opened(comparison_html(read_comparison(runs)), tmp_path, scheme)
        assert console == []
        assert bad_texts(found) == []
        assert found["scroll"] <= 390


def test_ten_thousand_trials(tmp_path):
    found, console = opened(report_html(made_up_run(10_000)), tmp_path, DARK)
    assert console == []
    assert found["dot"].count("features.") == 25
    assert bad_texts(found) == []
    assert found["scroll"] <= 390


def test_what_users_write_runs_nowhere(tmp_path):
    """Each of these would write to the console if it ran."""
    evil = '</script></style><img src=x onerror=console.log(1)>"><svg onload=console.log(2)>'
    run = made_up_run(30, num_groups=2)
    groups = [{**each, "name": f"{evil}{number}", "layers": [evil]} for number, each in enumerate(run.space["groups"])]
    trials = [
        replace(
            each, widths={f"{evil}{number}": width for number, width in enumerate(each.widths.values())}, search=evil
        )
        for each in run.studies[0].trials
    ]
    study = replace(run.studies[0], name=evil, trials=trials, warning=evil)
    entry = {"method": f"CafeNet {evil}", "budget": evil, "search_score": 0.5, "channels": {f"{evil}0": [0]}}
    row = {"method": entry["method"], "budget": evil, "flops": 5, "params": 5, "latency_ms": 1.0, "accuracies": [0.5],
           "search_score": 0.5, "widths": {f"{evil}0": 1}, "per_attribute": None}  # fmt: skip
    reference = {"method": evil, "budget": evil, "flops": evil, "params": evil, "accuracy": evil}
    recipe = {"description": evil, "metric": evil}
    full = {**row, "method": "Original", "budget": "", "flops": 9}
    page = report_html(
        replace(run, recipe=recipe, space={"groups": groups, "frozen": []}, studies=[study], entries=[entry],
                results={"rows": [full, row], "reference": [reference]}, problems=(evil,), title=evil)
    )  # fmt: skip
    assert "<img" not in page
    assert opened(page, tmp_path)[1] == []


def test_the_probe_sees_an_error(tmp_path):
    broken = report_html(made_up_run(3)).replace("</body>", "<script>absent();</script></body>")
    _, console = opened(broken, tmp_path)
    assert any("absent is not defined" in line for line in console)


def test_the_probe_sees_sideways_scrolling(tmp_path):
    wide = report_html(made_up_run(3)).replace("<h1>", '<h1 style="width: 900px">')
    found = opened(wide, tmp_path)[0]
    assert found["scroll"] > 390
    assert any(each["outside"] > 1 for each in bad_texts(found))


def test_the_probe_sees_pale_and_small_text(tmp_path):
    pale = report_html(made_up_run(3)).replace("<h1>", '<h1 style="color: #999; font-size: 10px">')
    (found,) = bad_texts(opened(pale, tmp_path, LIGHT)[0])
    assert found["words"] == "made up"
    assert found["size"] == 10
    assert found["contrast"] < TEXT_CONTRAST
