# ruff: noqa: F811 - a fixture that is imported
"""How the command line ends: signals and what is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inbedder.cache import Store
from inbedder.outputs import VectorWriter
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt, 130), (lambda: SystemExit(143), 143)])
def test_an_end_while_writing_leaves_no_half_file(folder, monkeypatch, capsys, make_model, end, code):
    def write_half(writer, *_args):
        writer.file.write(b"half")
        writer.file.flush()
        assert len(os.listdir(folder)) == 2
        raise end()

    monkeypatch.setattr(VectorWriter, "add", write_half)
    assert run(monkeypatch, "embed", "reviews.csv", "--model", make_model("bert")) == code
    assert "Interrupted; no half file was left" in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


def test_an_interrupt_before_the_command_has_begun_says_so_too(folder, monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["inbedder.cli.app"], "app", interrupted)
    assert run(monkeypatch, "embed", "reviews.csv") == 130
    assert capsys.readouterr().err == "Interrupted; no half file was left.\n"


def test_an_end_that_a_library_swallows_is_tried_again(folder):
    swallowing = """
import os, signal, sys, time
import inbedder.cli
app = sys.modules["inbedder.cli.app"]
def command():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    except:
        print("swallowed", flush=True)
    time.sleep(30)
app.AGAIN, app.app = 0.2, command
app.main()
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", swallowing], capture_output=True, text=True, timeout=20, env=environment)
    assert (ended.returncode, ended.stdout) == (143, "swallowed\n"), ended.stderr
    assert "Interrupted; no half file was left." in ended.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_leaves_a_whole_cache_and_no_temporary_file(folder, make_model, sent, code):
    (folder / "many.txt").write_text("".join(f"text number {i}\n" for i in range(200_000)))
    command = [sys.executable, "-m", "inbedder", "embed", "many.txt", "-o", "v.npy", "--model", make_model("bert")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--cache", "kept"], stderr=subprocess.PIPE, text=True, env=environment)
    kept = folder / "kept" / "inbedder.sqlite-wal"
    for _ in range(600):
        if kept.exists() and kept.stat().st_size > 100_000:
            break
        time.sleep(0.1)
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "Interrupted; no half file was left." in said) == (code, True), said
    assert sorted(os.listdir(folder)) == ["kept", "many.txt", "reviews.csv"]
    store = Store(folder / "kept")
    assert store.verify() == []
    assert store.info()[0]["entries"] > 0
