"""Killed runs, and runs of two processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
STEPS = ("training.dropout=0.0", "training.log_steps=1", "data.held_out=0", "data.cache=null", "training.bf16=false")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
pytestmark = pytest.mark.slow


def command(recipe, output, *settings, steps=6):
    changes = (*STEPS, f"training.max_steps={steps}", f"training.output={output}", *settings)
    pairs = [part for change in changes for part in ("--set", change)]
    return ["-m", "inbedder", "finetune", f"tests/data/recipes/{recipe}.yaml", *pairs]


def run(arguments):
    process = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def launch(arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}", *arguments]


def torchrun(arguments):
    return run(launch(arguments))


def read_losses(output):
    states = sorted(output.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    return [entry["loss"] for entry in json.loads(states[-1].read_text())["log_history"] if "loss" in entry]


@pytest.mark.parametrize(
    "settings",
    [
        ("objective.reencode_weight=1",),
        ("training.batch_size=8", "training.micro_batch=2", "training.token_mean=micro-batch"),
    ],
)
def test_two_processes_give_the_curve_of_one(tmp_path, settings):
    run(command("tiny-opt", tmp_path / "one", *settings))
    torchrun(command("tiny-opt", tmp_path / "two", *settings))
    assert len(read_losses(tmp_path / "one")) == 6
    assert read_losses(tmp_path / "two") == pytest.approx(read_losses(tmp_path / "one"), abs=1e-3)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_diverges_fails_in_every_process(tmp_path, processes):
    arguments = command("tiny-opt", tmp_path / "out", "training.learning_rate=1e30")
    arguments = launch(arguments) if processes == 2 else arguments
    process = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr.count(" of 6, where the learning rate is ") == processes
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


def test_a_killed_run_resumes_to_the_same_weights(tmp_path):
    settings = ("training.save_steps=2", "training.dropout=0.1")
    run(command("tiny-opt-lora", tmp_path / "whole", *settings, steps=40))
    arguments = command("tiny-opt-lora", tmp_path / "killed", *settings, steps=40)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, **quiet)
    while not list((tmp_path / "killed").glob("checkpoint-4*")) and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "adapter_model.safetensors").exists()
    run(arguments)
    assert read_losses(tmp_path / "killed") == read_losses(tmp_path / "whole")
    one, two = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("kind", "family"), [("causal", "llama"), ("masked", "bert")])
def test_losses_of_a_sharded_model_have_the_gradients_of_the_whole(make_model, kind, family):
    output = torchrun([str(ROOT / "tests" / "finetune" / "sharded.py"), kind, make_model(family)])
    assert output.count("equal") == 2


def test_two_processes_resume_in_the_middle_of_the_second_epoch(tmp_path):
    settings = ("training.save_steps=11",)  # an epoch has 15 steps
    torchrun(command("tiny-opt-lora", tmp_path / "whole", *settings, steps=32))
    shutil.copytree(tmp_path / "whole" / "checkpoint-22", tmp_path / "resumed" / "checkpoint-22")
    torchrun(command("tiny-opt-lora", tmp_path / "resumed", *settings, steps=32))
    one, two = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "resumed"))
    assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)
