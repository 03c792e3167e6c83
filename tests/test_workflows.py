"""The workflows run what is promised: every supported Python, actions that cannot change, rights that are as small as can be."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_say_their_version(path):
    actions = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert actions
    assert [line for line in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_one_action_has_one_commit():
    actions = {line for path in WORKFLOWS for line in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))}
    assert len({name.split("@")[0] for name in actions}) == len(actions)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_and_only_publishing_jobs_more(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert name in ("publish", "deploy") or "permissions" not in job
        assert job["timeout-minutes"] <= 120


def test_the_matrix_holds_every_supported_python_and_three_systems():
    matrix = yaml.safe_load(WORKFLOWS[-1].read_text(encoding="utf-8"))["jobs"]["quick"]["strategy"]["matrix"]
    assert matrix["python"] == [f"3.{minor}" for minor in range(10, 15)]
    assert {job["os"] for job in matrix["include"]} == {"windows-latest", "macos-latest"}
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_publishing_needs_no_token():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "id-token: write" in workflow
    assert "secrets." not in workflow
