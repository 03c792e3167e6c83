"""The container file: what it copies exists, and its process, health check and end work here as they would in it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from inbedder.server.settings import Settings
from tests.server.test_run_server import serving, wait_until

ROOT = Path(__file__).parents[2]
STEPS = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


def steps(name):
    return [line.removeprefix(f"{name} ") for line in STEPS.splitlines() if line.startswith(f"{name} ")]


def test_what_is_copied_exists_and_nothing_else_is_sent():
    sources = [source for step in steps("COPY") for source in step.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(line.removeprefix("!") for line in ignored if line.startswith("!")) == sorted(sources)
    assert ignored[0] == "*"


def test_the_server_runs_as_a_user_without_rights_and_with_the_bundled_model():
    assert steps("USER") == ["10001"]  # the number that useradd gives: hosts without its name resolve it too
    assert "--uid 10001" in steps("RUN")[0]
    assert STEPS.index("\nUSER ") < STEPS.index("\nENTRYPOINT ")
    (install,) = steps("RUN")
    assert ".[mini,serve]" in install
    assert "-c constraints.txt" in install
    assert steps("FROM") == ["python:3.11-slim"]


def test_the_process_is_healthy_by_the_files_own_check_and_ends_at_sigterm():
    entry = json.loads(steps("ENTRYPOINT")[0])
    assert entry == ["inbedder", "serve"]
    environment = dict(pair.split("=") for step in steps("ENV") for pair in step.split() if pair.startswith("INBEDDER_"))
    assert environment == {"INBEDDER_HOST": "0.0.0.0", "INBEDDER_PORT": "8765"}
    with serving(INBEDDER_HOST="0.0.0.0", INBEDDER_API_KEY="key") as (process, url):
        port = url.rpartition(":")[2]
        check = json.loads(steps("HEALTHCHECK")[0].partition("CMD ")[2])
        command = [sys.executable, *(part.replace("8765", port) for part in check[1:])]
        assert subprocess.run(command).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0


def test_without_a_key_the_container_does_not_start():
    environment = {name: value for name, value in os.environ.items() if name != "INBEDDER_API_KEY"}
    with serving(INBEDDER_HOST="0.0.0.0", **environment) as (process, _):
        wait_until(lambda: process.poll() is not None)
        assert process.returncode == 1


def test_the_compose_example_sets_what_there_is_to_set():
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["inbedder"]
    for name in service["environment"]:
        assert name.removeprefix("INBEDDER_").lower() in Settings.model_fields
    options = [part for part in service["command"] if part.startswith("--")]
    assert {option.strip("-").replace("-", "_") for option in options} <= set(Settings.model_fields)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(service["stop_grace_period"].removesuffix("s")) > Settings().grace
