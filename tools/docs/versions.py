"""The documentation of several versions side by side, with a list from which its pages offer a choice.

    python -m tools.docs.versions build/site build/docs

copies the site that `make docs` has built to `build/docs/VERSION`, beside the versions that are there already, and
writes `versions.json` (what the theme reads, newest first) and an `index.html` that leads to the newest.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

import cafenet

_INDEX = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}/index.html">\n'


def main() -> None:
    """Add the present version."""
    parser = argparse.ArgumentParser(description="Put the documentation of this version beside those of others.")
    parser.add_argument("site", type=Path, help="the site of this version")
    parser.add_argument("output", type=Path, help="directory with a site for each version")
    args = parser.parse_args()
    add_version(args.site, args.output, cafenet.__version__)


def add_version(site: Path, output: Path, version: str) -> list[str]:
    """Copy a site beside those of other versions.

    Args:
        site: The site.
        output: Directory with a site for each version.
        version: The version that the site is of; an earlier copy of it is replaced.

    Returns:
        All versions that are there now, newest first.
    """
    shutil.rmtree(output / version, ignore_errors=True)
    shutil.copytree(site, output / version)
    versions = sorted((path.parent.name for path in output.glob("*/index.html")), key=_order, reverse=True)
    aliases = {each: ["latest"] if each == versions[0] else [] for each in versions}
    listed = [{"version": each, "title": each, "aliases": aliases[each]} for each in versions]
    (output / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (output / "index.html").write_text(_INDEX.format(versions[0]))
    return versions


def _order(version: str) -> tuple[list[int], bool, str]:
    """Return what versions are sorted by: their numbers, and 1.0rc1 before 1.0."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    return parts, numbers is not None and numbers[0] == version, version


if __name__ == "__main__":
    main()
