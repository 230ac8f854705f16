"""The job files of the guide: bash reads them, their options exist, and the manifests fit the schemas of Kubernetes."""

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cafenet.cli import run, worker
from cafenet.runs.recipe_files import recipe_parser

JOBS = Path(__file__).parents[2] / "docs" / "how-to" / "jobs"
SCRIPTS = sorted(JOBS.glob("*.sh"))
TIME = r"(\d+-)?\d+(:\d\d){0,2}"
SBATCH = {
    "job-name": r"[\w-]+",
    "array": r"\d+(-\d+)?(%\d+)?",
    "nodes": r"\d+(-\d+)?",
    "ntasks": r"\d+",
    "ntasks-per-node": r"\d+",
    "gpus": r"(\w+:)?\d+",
    "gpus-per-node": r"(\w+:)?\d+",
    "cpus-per-task": r"\d+",
    "time": TIME,
    "signal": r"(B:)?[A-Z0-9]+(@\d+)?",
    "requeue": None,
    "open-mode": "append|truncate",
    "output": r"[\w./%-]+",
}
"""Options of sbatch that the scripts may use, with the form of their values; None takes none."""


def sbatch_options(script: str) -> dict[str, str | None]:
    """The #SBATCH lines, which Slurm reads up to the first command."""
    found: dict[str, str | None] = {}
    for line in script.splitlines()[1:]:
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            match = re.fullmatch(r"#SBATCH --([\w-]+)(?:=(\S+))?", line)
            assert match, line
            found[match[1]] = match[2]
    return found


def commands(script: str) -> list[list[str]]:
    """The cafenet commands of a script, with its variables replaced by something."""
    text = re.sub(r"\\\n", " ", script)
    text = text.replace('"${FLAGS[@]}"', '--output "x" --train.examples_per_step "8" --quiet')
    text = re.sub(r"\$\{[^}]*:-(\d+)\}", r"\1", text)
    text = re.sub(r'"\$\{?\w+[^"]*"', "x", text)
    words = [shlex.split(line) for line in text.splitlines() if re.match(r"srun .*\bcafenet\b", line)]
    return [each[each.index("cafenet") + 1 :] for each in words]


def assert_is_a_command(arguments: list[str]) -> None:
    """All flags of a cafenet command exist."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    subparsers = parser.add_subparsers()
    for module in (run, worker):
        module.add_to(subparsers)
    parsed, flags = parser.parse_known_args(arguments)
    if flags:
        assert arguments[0] != "worker", flags
        recipe_parser(prog="x").parse_args(flags)
    assert parsed.command_function


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_slurm_reads_the_script(path):
    text = path.read_text()
    assert text.startswith("#!/bin/bash\n")
    options = sbatch_options(text)
    assert {"job-name", "time", "output", "cpus-per-task"} <= options.keys()
    for name, value in options.items():
        form = SBATCH[name]
        assert (value is None) if form is None else re.fullmatch(form, str(value)), (name, value)
    subprocess.run([shutil.which("bash"), "-n", str(path)], check=True)
    assert commands(text)
    for each in commands(text):
        assert_is_a_command(each)


def test_a_script_without_its_variables_says_what_is_missing():
    for path in SCRIPTS:
        done = subprocess.run(
            [shutil.which("bash"), str(path)], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert re.search(r"(RECIPE|OUTPUT): the (recipe|run directory)", done.stderr), done.stderr


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((JOBS / "kubernetes.yaml").read_text()))


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_a_manifest_fits_the_schema_of_kubernetes(manifest):
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(manifest, validate.latest_version(), strict=True)
    broken = {**manifest, "metadata": {**manifest["metadata"], "nmae": "x"}}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, validate.latest_version(), strict=True)


def test_what_the_manifests_refer_to_is_there():
    every = manifests()
    names = {(each["kind"], each["metadata"]["name"]) for each in every}
    jobs = [each for each in every if each["kind"] == "Job"]
    assert len(jobs) == 2
    for job in jobs:
        spec = job["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert_is_a_command(container["command"][1:])
        for variable in container["env"]:
            assert ("Secret", variable["valueFrom"]["secretKeyRef"]["name"]) in names
        for volume in spec["volumes"]:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
    service = next(each for each in every if each["kind"] == "Service")
    server = next(each for each in every if each["kind"] == "StatefulSet")
    assert service["spec"]["selector"].items() <= server["spec"]["template"]["metadata"]["labels"].items()
    secret = next(each for each in every if each["kind"] == "Secret")["stringData"]
    assert f"@{service['metadata']['name']}/" in secret["url"]
    assert f":{secret['password']}@" in secret["url"]
