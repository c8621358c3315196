"""The workflows: what they run exists, with the options that they give."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from support.paths import ROOT

WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = [
    pytest.param(job, id=f"{name}-{job_name}")
    for name, workflow in WORKFLOWS.items()
    for job_name, job in workflow["jobs"].items()
]
PROGRAMS = [
    program
    for workflow in WORKFLOWS.values()
    for job in workflow["jobs"].values()
    for program in job.get("strategy", {}).get("matrix", {}).get("program", ())
]
OF_PYTEST = {"-n", "--dist", "--no-loadscope-reorder"}
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows")


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_a_change_must_pass_what_ci_runs() -> None:
    [job] = WORKFLOWS["ci.yml"]["jobs"].values()
    assert "bash .ci/run" in commands(job)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert job["strategy"]["matrix"]["python"] == re.findall(r"Python :: (3\.\d+)\"", text)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_an_end_and_runs_what_is_there(job: dict[str, Any]) -> None:
    assert 0 < job["timeout-minutes"] <= 120
    for word in commands(job).split():
        if word.startswith("tests/") or word.endswith((".sh", ".ci/run")):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_matrix_exists_with_its_options(program: str) -> None:
    tool, *words = program.split()
    text = (ROOT / "tests" / "tools" / f"{tool}.py").read_text("utf-8")
    for option in {word for word in words if word.startswith("-")} - OF_PYTEST:
        assert f'"{option}"' in text, f"tools.{tool} has no {option}"


def test_every_night_tells_what_became_dearer() -> None:
    """Also by stages and in processor time, which other work hardly disturbs."""
    run = commands(WORKFLOWS["nightly.yml"]["jobs"]["benchmarks"])
    [names] = re.findall(r"-m benchmarks --against \S+ (.+)", run)
    for name in names.split():
        assert (ROOT / "benchmarks" / f"{name}.py").is_file(), name
    assert {"stages", "processor"} <= set(names.split())
