#!/usr/bin/env python3
"""Run the steps of the Dockerfile's first stage without Docker: copy, install, start, health check, stop.

    python scripts/dev/container_steps.py

It copies into an empty folder and installs into a new environment; its user and its volume are left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
"""Timeout for startup and shutdown, in seconds."""


def read_steps(name: str) -> list[str]:
    """Return the arguments of each line with this instruction in the Dockerfile's first stage."""
    stage, _, _ = (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("\nFROM server AS gpu")
    lines = re.sub(r"\\\n\s*", "", stage).splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def copy_files(folder: Path) -> None:
    """Copy the files that the Dockerfile copies."""
    for step in read_steps("COPY"):
        *sources, target = step.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, folder / target)


def main() -> None:
    """Run all steps; a failed step stops the run."""
    port = "18790"
    with tempfile.TemporaryDirectory() as place:
        folder, environment = Path(place) / "app", Path(place) / "venv"
        folder.mkdir()
        copy_files(folder)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        variables = dict(
            pair.replace('"', "").split("=", 1) for name in ("ARG", "ENV") for step in read_steps(name) for pair in step.split()
        )
        environment_variables = {
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            "INBEDDER_PORT": port,
            "INBEDDER_API_KEY": "key",
        }
        settings = {**os.environ, **variables, **environment_variables}
        settings.pop("PYTHONPATH", None)
        (install,) = [part.strip() for part in read_steps("RUN")[0].split("&&") if part.strip().startswith("pip install")]
        subprocess.run(["bash", "-c", install], cwd=folder, env=settings, check=True)
        check = [part.replace("8765", port) for part in json.loads(read_steps("HEALTHCHECK")[0].partition("CMD ")[2])]
        with subprocess.Popen(json.loads(read_steps("ENTRYPOINT")[0]), cwd=place, env=settings) as server:
            try:
                deadline = time.monotonic() + SECONDS
                while subprocess.run(check, env=settings, stderr=subprocess.DEVNULL, check=False).returncode:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit("The server did not become healthy.")
                    time.sleep(0.5)
            finally:
                server.send_signal(signal.SIGTERM)
            if server.wait(SECONDS):
                raise SystemExit(f"The server ended with {server.returncode}.")
    print("The container's steps work: installed, healthy, ended.")


if __name__ == "__main__":
    main()
