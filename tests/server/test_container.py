"""Dockerfile, compose file and Kubernetes objects: their sources exist, and their process, checks and shutdown work outside."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import torch
import yaml

from inbedder.server.settings import Settings
from tests.server.test_run_server import run_server, send_request, wait_until

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
    install, _ = list_steps("RUN")
    assert "--uid 10001" in install
    assert STEPS.index("\nUSER ") < STEPS.index("\nENTRYPOINT ")
    assert '".[${EXTRAS}]"' in install and 'EXTRAS="mini,serve"' in list_steps("ARG")
    assert "-c constraints.txt" in install
    assert list_steps("FROM") == ["python:3.11-slim AS server", "server AS gpu", "server AS cpu"]


def test_the_gpu_image_refuses_a_torch_for_cpus_and_a_host_without_gpu():
    _, check = list_steps("RUN")
    built_for_gpus = torch.version.cuda is not None
    assert (subprocess.run([sys.executable, *json.loads(check)[1:]], stderr=subprocess.DEVNULL).returncode == 0) is built_for_gpus
    assert "INBEDDER_DEVICE=cuda" in list_steps("ENV")[-1]
    if not torch.cuda.is_available():
        with run_server(INBEDDER_DEVICE="cuda") as (process, _):
            assert process.wait(60) == 1
            process.reader.join()
            assert "The device 'cuda' cannot be used here" in process.lines[-1]


def test_the_health_check_passes_until_sigterm_ends_the_process():
    entry = json.loads(list_steps("ENTRYPOINT")[0])
    assert entry == ["inbedder", "serve"]
    environment = dict(pair.split("=") for step in list_steps("ENV") for pair in step.split() if pair.startswith("INBEDDER_"))
    assert environment.pop("INBEDDER_DEVICE") == "cuda"  # of the image for GPUs
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


KUBERNETES = ROOT / "docs" / "tutorials" / "kubernetes.yaml"


def test_the_kubernetes_example_sets_existing_settings_and_ports():
    deployment, service, autoscaler = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    names = [entry["name"] for entry in container["env"] if entry["name"].startswith("INBEDDER_")]
    assert {name.removeprefix("INBEDDER_").lower() for name in names} <= set(Settings.model_fields)
    (port,), (target,) = container["ports"], service["spec"]["ports"]
    assert f"INBEDDER_PORT={port['containerPort']}" in list_steps("ENV")[-2] and target["targetPort"] == port["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert pod["spec"]["enableServiceLinks"] is False  # or INBEDDER_PORT=tcp://... of the Service ends the server
    assert f"{pod['spec']['securityContext']['runAsUser']}" == list_steps("USER")[0]


def test_the_kubernetes_probes_pass_without_the_key(tmp_path):
    deployment, *_ = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {entry["name"]: entry.get("value", "the-key") for entry in container["env"]}
    environment |= {"INBEDDER_HOST": "0.0.0.0", "INBEDDER_CACHE": str(tmp_path / "cache")}
    with run_server(**environment) as (process, url):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = urllib.request.Request(url + container[name]["httpGet"]["path"], headers={"Host": "10.1.2.3:8765"})
            with urllib.request.urlopen(probe, timeout=60) as response:
                assert response.status == 200
        fields = {"input": "Great phone", "instruction": "Is it praise?"}
        assert json.loads(send_request(f"{url}/v1/answers", fields, environment["INBEDDER_API_KEY"]))["model"] == "mini"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
