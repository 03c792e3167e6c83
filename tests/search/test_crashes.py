"""Kills, a second writer, a full disk: no committed row is lost, and a rerun duplicates none."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inbedder.errors import InputError
from inbedder.io.locks import LOCK_FILE
from inbedder.search import Index
from inbedder.search.lance_engine import lock
from tests.search.conftest import QUESTION, REVIEWS

ROOT = Path(__file__).parents[2]
KILLS = ROOT / "tests" / "faults" / "index_kills.py"
LONG_ROWS = [{"text": f"Text number {number} " + "with many words " * 20} for number in range(400)]


@pytest.mark.slow
def test_kills_lose_no_committed_row_and_a_rerun_duplicates_none(tmp_path):
    run = subprocess.run(
        [sys.executable, KILLS, "--kills", "4", "-o", tmp_path / "kills.json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    results = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert [results[name]["runs"] for name in ("build", "add", "update", "compact")] == [1, 1, 1, 1]


def test_a_second_writer_is_refused_and_readers_go_on(index):
    hold_lock = "fcntl.flock(file, fcntl.LOCK_EX); print('locked', flush=True); input()"
    code = f"import fcntl; file = open({str(index.storage.folder / LOCK_FILE)!r}, 'a'); {hold_lock}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "locked\n"
        for write in (
            lambda: index.add([{"text": "New"}]),
            lambda: index.delete(index.storage.list_ids()),
            lambda: index.update([{"id": index.storage.list_ids()[0], "stars": 3}]),
            lambda: index.instruct(QUESTION),
            index.compact,
        ):
            with pytest.raises(InputError, match="Another process is writing"):
                write()
        assert len(index.search("battery", QUESTION, k=3)) == 3
        writer.kill()
    assert index.add([{"text": "New"}]) == 1  # the system released the killed process's lock
    assert len(index) == len(REVIEWS) + 1


def test_the_lock_is_free_again_after_an_error(index):
    with pytest.raises(ZeroDivisionError), lock(index.storage.folder):
        raise ZeroDivisionError
    assert index.add([{"text": "New"}]) == 1


def test_a_full_disk_is_reported_and_nothing_is_lost(index):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, hard))
    try:
        with pytest.raises(InputError, match="is full"):
            index.add(LONG_ROWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert index.verify() == []
    assert len(index) == len(REVIEWS)
    assert index.add(LONG_ROWS) == len(LONG_ROWS)
    assert index.verify() == []


@pytest.mark.parametrize("damage", ["truncate", "empty", "zero", "remove"])
def test_damage_of_any_file_is_told_without_a_place_in_the_engine(index, tiny, tmp_path, damage):
    folder = index.storage.folder
    for path in sorted(path for path in (folder / "texts.lance").rglob("*") if path.is_file()):
        damaged_folder = tmp_path / "damaged"
        shutil.rmtree(damaged_folder, ignore_errors=True)
        shutil.copytree(folder, damaged_folder)
        damaged_file, content = damaged_folder / path.relative_to(folder), path.read_bytes()
        if damage == "remove":
            damaged_file.unlink()
        else:
            half = len(content) // 2
            damaged_file.write_bytes({"truncate": content[:half], "empty": b"", "zero": content[:half] + bytes(half)}[damage])
        try:
            opened = Index.open(damaged_folder, tiny)
            opened.verify()
            opened.search("battery", QUESTION, hybrid=True)
            opened.info()
            opened.add([{"text": "New"}])
            opened.compact()
        except InputError as error:
            assert ".rs:" not in str(error)
