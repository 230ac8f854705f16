"""Takes docs/images/report.png: the first screen of the report of `make demo`, as headless Chromium shows it.

python -m benchmarks.demo
python -m tools.docs.report_picture                     # or with the path of another report
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "report.png"
REPORT = ROOT / "runs" / "trained-demo" / "search" / "report.html"
SIZE = (1280, 895)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def take(report: Path, picture: Path) -> None:
    """Take the picture.

    Args:
        report: The HTML file.
        picture: The PNG file to write.

    Raises:
        SystemExit: If Chromium is not installed or writes no picture.
    """
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        raise SystemExit(f"the picture needs Chromium; install one of {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        flags += ["--blink-settings=preferredColorScheme=1", f"--window-size={SIZE[0]},{SIZE[1]}"]
        flags += ["--virtual-time-budget=10000", f"--screenshot={picture}"]
        done = subprocess.run([chromium, *flags, report.resolve().as_uri()], capture_output=True, text=True)
    if done.returncode or not picture.exists():
        raise SystemExit(f"Chromium took no picture of {report}: {done.stderr[-500:]}")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT, PICTURE)
    print(f"{PICTURE} written")
