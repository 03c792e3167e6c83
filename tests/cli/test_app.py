# ruff: noqa: F811 - a fixture that is imported
"""How commands end: signals, warnings and the files they leave."""

import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from inbedder.cache.store import Store
from inbedder.cli import main
from inbedder.errors import TextCutWarning
from inbedder.io.outputs import VectorWriter
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt, 130), (lambda: SystemExit(143), 143)])
def test_an_interrupted_write_leaves_no_partial_file(folder, monkeypatch, capsys, make_model, end, code):
    def write_half(writer, *_args):
        writer.file.write(b"half")
        writer.file.flush()
        assert len(os.listdir(folder)) == 2
        raise end()

    monkeypatch.setattr(VectorWriter, "add", write_half)
    assert run(monkeypatch, "embed", "reviews.csv", "--model", make_model("bert")) == code
    assert "Interrupted. No partial files were left behind" in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


def test_an_interrupt_before_the_command_is_reported(folder, monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["inbedder.cli.app"], "app", interrupted)
    assert run(monkeypatch, "embed", "reviews.csv") == 130
    assert capsys.readouterr().err == "Interrupted. No partial files were left behind.\n"


def test_only_warnings_of_inbedder_are_shown(monkeypatch, capsys):
    def noisy():
        logging.getLogger("bitsandbytes.backends.cpu.ops").warning("Failed to load CPU gemm_4bit_forward from kernels-community")
        for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
            warnings.warn_explicit("torch_dtype is deprecated", category, "/site-packages/other/module.py", 1)
        warnings.warn("2 texts were cut", TextCutWarning, stacklevel=1)

    monkeypatch.setattr(sys.modules["inbedder.cli.app"], "app", noisy)
    main()
    assert capsys.readouterr().err == "warning: 2 texts were cut\n"


def test_logged_warnings_are_escaped_for_the_terminal():
    result = run_as_command("import logging; logging.getLogger('inbedder').warning('The cache %s is full', 'a\\x1b[2J\\u202eb')")
    assert (result.returncode, result.stderr) == (0, "The cache a\\x1b[2J\\u202eb is full\n")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")], ids=repr)
def test_short_memory_is_reported_with_advice(folder, monkeypatch, capsys, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr("inbedder.io.tables.open_texts", fail)
    assert run(monkeypatch, "embed", "reviews.csv") == 1
    message = capsys.readouterr().err
    assert message.startswith("error: Not enough memory. Use a smaller batch size (--batch-size)")
    assert "Unexpected" not in message
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


@pytest.mark.parametrize("encoding", ["cp1252", "cp437"])
def test_characters_that_the_terminal_lacks_are_replaced(encoding):
    body = "from inbedder.cli.shared_options import print_message, print_result\nprint_result('aą猫')\nprint_message('bą猫')"
    result = run_as_command(body, environment={"PYTHONIOENCODING": encoding})
    assert (result.returncode, result.stdout) == (0, "a??\n"), result.stderr
    assert result.stderr.startswith("b")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_time_to_clean_up(folder, number, code):
    body = f"""
try:
    os.kill(os.getpid(), {int(number)})
    time.sleep(1)
finally:
    time.sleep(1)
    print("cleaned up", flush=True)
"""
    result = run_as_command(body)
    assert (result.returncode, result.stdout) == (code, "cleaned up\n"), result.stderr


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_command_at_once(folder, first, second):
    body = f"""
try:
    os.kill(os.getpid(), {int(first)})
    time.sleep(1)
finally:
    os.kill(os.getpid(), {int(second)})
    print("still there", flush=True)
"""
    result = run_as_command(body)
    assert (result.returncode, result.stdout) == (-second, ""), result.stderr


def test_a_signal_that_the_caller_ignores_is_ignored(folder):
    result = run_as_command(
        f"os.kill(os.getpid(), {int(signal.SIGINT)}); print('still there')", "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    assert (result.returncode, result.stdout) == (0, "still there\n"), result.stderr


def run_as_command(body, before="", environment=None):
    """Run code as the body of a command."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    code = (
        f"import os, signal, sys, time\nimport typer\n{before}\n"
        f"import inbedder.cli\nmodule = sys.modules['inbedder.cli.app']\n"
        f"command = typer.Typer(add_completion=False)\n@command.command()\ndef body():\n{indented}"
        "module.app = command\nmodule.main()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | (environment or {})
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, env=environment)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_an_intact_cache_and_no_temporary_file(folder, make_model, number, code):
    (folder / "many.txt").write_text("".join(f"text number {i}\n" for i in range(200_000)))
    command = [sys.executable, "-m", "inbedder", "embed", "many.txt", "-o", "v.npy", "--model", make_model("bert")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--cache", "cache"], stderr=subprocess.PIPE, text=True, env=environment)
    cache_file = folder / "cache" / "inbedder.sqlite-wal"
    for _ in range(600):
        if cache_file.exists() and cache_file.stat().st_size > 100_000:
            break
        time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Interrupted. No partial files were left behind." in errors) == (code, True), errors
    assert sorted(os.listdir(folder)) == ["cache", "many.txt", "reviews.csv"]
    store = Store(folder / "cache")
    assert store.verify() == []
    assert store.info()[0]["entries"] > 0


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no working folder")
def test_a_working_folder_that_was_deleted_is_named(tmp_path):
    code = (
        "import os, sys; os.rmdir(os.getcwd()); sys.argv = ['inbedder', '--version']; from inbedder.cli.app import main; main()"
    )
    folder = tmp_path / "gone"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "The working folder was deleted" in run.stderr
