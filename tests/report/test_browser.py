"""Pages in headless Chromium: drawn without an error, answering to the pointer, and fit for a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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


def test_the_page_of_a_run(finished, tmp_path):
    found, console = opened((finished / "report.html").read_text(), tmp_path)
    assert console == []
    assert len(found["sizes"]) == 7
    assert all(width > 300 and height > 40 and shapes > 5 for width, height, shapes in found["sizes"])
    assert re.match(r"\d+\.\d\d at [\d,]+ FLOPs\n0 \d+, 3 \d+$", found["dot"])
    assert re.match(r"0: \d+ of 8 channels$", found["bar"])
    assert found["nothing"] is None
    before, hidden, after = found["legend"]
    assert all(before)
    assert not any(hidden)
    assert after == before
    assert found["scroll"] <= 390


def test_dark_mode_and_ten_thousand_trials(tmp_path):
    found, console = opened(report_html(made_up_run(10_000)), tmp_path, "--force-dark-mode")
    assert console == []
    assert found["dot"].count("features.") == 25
    assert found["scroll"] <= 390


def test_the_probe_sees_an_error(tmp_path):
    broken = report_html(made_up_run(3)).replace('"use strict";', '"use strict"; absent();')
    _, console = opened(broken, tmp_path)
    assert any("absent is not defined" in line for line in console)


def test_the_probe_sees_sideways_scrolling(tmp_path):
    wide = report_html(made_up_run(3)).replace("<h1>", '<h1 style="width: 900px">')
    assert opened(wide, tmp_path)[0]["scroll"] > 390
