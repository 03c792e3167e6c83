"""Kills, a second writer, a full disk: nothing that was committed is lost, and going on doubles nothing."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from inbedder.errors import InputError
from inbedder.search.lance_engine import LOCK, lock
from tests.search.conftest import QUESTION, REVIEWS

ROOT = Path(__file__).parents[2]
KILLS = ROOT / "tests" / "faults" / "index_kills.py"
MANY = [{"text": f"Text number {number} " + "with many words " * 20} for number in range(400)]


def test_kills_lose_no_committed_row_and_going_on_doubles_none(tmp_path):
    run = subprocess.run(
        [sys.executable, KILLS, "--kills", "4", "-o", tmp_path / "kills.json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert [found[name]["runs"] for name in ("build", "add", "update", "compact")] == [1, 1, 1, 1]


def test_a_second_writer_is_told_and_readers_go_on(index):
    held = "fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); input()"
    code = f"import fcntl; file = open({str(index.storage.folder / LOCK)!r}, 'a'); {held}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "held\n"
        for write in (
            lambda: index.add([{"text": "New"}]),
            lambda: index.delete(index.storage.ids()),
            lambda: index.update([{"id": index.storage.ids()[0], "stars": 3}]),
            lambda: index.instruct(QUESTION),
            index.compact,
        ):
            with pytest.raises(InputError, match="Another process is writing"):
                write()
        assert len(index.search("battery", QUESTION, k=3)) == 3
        writer.kill()
    assert index.add([{"text": "New"}]) == 1  # the system freed what the killed process held
    assert len(index) == len(REVIEWS) + 1


def test_the_lock_is_free_again_after_an_error(index):
    with pytest.raises(ZeroDivisionError), lock(index.storage.folder):
        raise ZeroDivisionError
    assert index.add([{"text": "New"}]) == 1


def test_a_full_disk_is_told_and_nothing_is_lost(index):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, hard))
    try:
        with pytest.raises(InputError, match="is full"):
            index.add(MANY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert index.verify() == []
    assert len(index) == len(REVIEWS)
    assert index.add(MANY) == len(MANY)
    assert index.verify() == []


def test_the_committed_kills_found_nothing_wrong():
    found = json.loads((ROOT / "scripts" / "results" / "index_kills.json").read_text(encoding="utf-8"))
    operations = [found[name] for name in ("build", "add", "update", "compact")]
    assert sum(operation["runs"] for operation in operations) == 50
    assert all(operation["wrong"] == [] for operation in operations)
