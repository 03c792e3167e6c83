"""The Dockerfile: its sources exist, and its process, health check and shutdown work outside a container."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from inbedder.server.settings import Settings
from tests.server.test_run_server import run_server, wait_until

ROOT = Path(__file__).parents[2]
STEPS = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


def list_steps(name):
    return [line.removeprefix(f"{name} ") for line in STEPS.splitlines() if line.startswith(f"{name} ")]


def test_copied_files_exist_and_the_build_context_holds_no_others():
    sources = [source for step in list_steps("COPY") for source in step.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(line.removeprefix("!") for line in ignored if line.startswith("!")) == sorted(sources)
    assert ignored[0] == "*"


def test_the_server_runs_as_an_unprivileged_user_with_the_bundled_model():
    assert list_steps("USER") == ["10001"]  # a number, which hosts without the user's name can resolve
    assert "--uid 10001" in list_steps("RUN")[0]
    assert STEPS.index("\nUSER ") < STEPS.index("\nENTRYPOINT ")
    (install,) = list_steps("RUN")
    assert ".[mini,serve]" in install
    assert "-c constraints.txt" in install
    assert list_steps("FROM") == ["python:3.11-slim"]


def test_the_health_check_passes_until_sigterm_ends_the_process():
    entry = json.loads(list_steps("ENTRYPOINT")[0])
    assert entry == ["inbedder", "serve"]
    environment = dict(pair.split("=") for step in list_steps("ENV") for pair in step.split() if pair.startswith("INBEDDER_"))
    assert environment == {"INBEDDER_HOST": "0.0.0.0", "INBEDDER_PORT": "8765"}
    with run_server(INBEDDER_HOST="0.0.0.0", INBEDDER_API_KEY="key") as (process, url):
        port = url.rpartition(":")[2]
        check = json.loads(list_steps("HEALTHCHECK")[0].partition("CMD ")[2])
        command = [sys.executable, *(part.replace("8765", port) for part in check[1:])]
        assert subprocess.run(command).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0


def test_without_a_key_the_container_does_not_start():
    environment = {name: value for name, value in os.environ.items() if name != "INBEDDER_API_KEY"}
    with run_server(INBEDDER_HOST="0.0.0.0", **environment) as (process, _):
        wait_until(lambda: process.poll() is not None)
        assert process.returncode == 1


def test_the_compose_example_sets_existing_settings():
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["inbedder"]
    for name in service["environment"]:
        assert name.removeprefix("INBEDDER_").lower() in Settings.model_fields
    options = [part for part in service["command"] if part.startswith("--")]
    assert {option.strip("-").replace("-", "_") for option in options} <= set(Settings.model_fields)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(service["stop_grace_period"].removesuffix("s")) > Settings().grace
