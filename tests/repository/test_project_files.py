"""Files beside the code: workflows call targets that exist, hooks run what `make lint` runs."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_workflows_call_targets_of_the_makefile():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [path.name for path in workflows] == ["release.yml", "test.yml"]
    for path in workflows:
        (job,) = yaml.safe_load(path.read_text())["jobs"].values()
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands
        for command in commands:
            make, target = command.split()
            assert make == "make"
            assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_hooks_run_what_make_lint_runs():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = [Path(hook["entry"].split()[0]).name for hook in local["hooks"]]
    assert tools == re.findall(r"\$\(BIN\)/(\S+)", MAKEFILE.split("lint: ")[1].split("\n\n")[0])
