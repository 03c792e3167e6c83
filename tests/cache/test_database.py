import logging
import os
import shutil
import sqlite3
import tempfile
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from inbedder.cache import database
from inbedder.cache.database import DATABASE_FILE, hash_space, is_intact, open_file, parse_description
from inbedder.cache.store import Store, hash_entry
from inbedder.errors import InputError

SPACE = {"model": "tiny", "layer": -1}
ENTRIES = {hash_entry(str(i), "Why?"): bytes([i]) * 1500 for i in range(50)}


def run_in_child(function):
    """Run a function in a child process, which must succeed; a child of root gives up root's permissions."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0


@pytest.fixture
def root():
    """A temporary folder that every user can read."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def make_read_only(folder):
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.mark.parametrize("left_by", ["a run that ended", "a killed run"])
def test_a_read_only_cache_is_used_with_one_warning(root, tmp_path, caplog, left_by):
    read_only = root / "kept"
    store = Store(tmp_path / "kept")
    store.put(SPACE, ENTRIES.items())
    if left_by == "a run that ended":
        del store
    shutil.copytree(tmp_path / "kept", read_only)
    assert len(list(read_only.iterdir())) == (1 if left_by == "a run that ended" else 3)  # the log and shared memory
    make_read_only(root)

    def check_store():
        store = Store(read_only, "5M")
        assert store.read_only
        for _ in range(2):
            assert store.get(SPACE, list(ENTRIES)) == ENTRIES
            assert store.put(SPACE, [(hash_entry("new", ""), b"x")]) is False
        assert store.info() == [{**SPACE, "entries": 50, "bytes": 75000}]
        assert store.verify() == []
        for method in (store.repair, store.clear):
            with pytest.raises(InputError, match=r"cannot be (written|removed)"):
                method()
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "no new ones are added" in caplog.text
        assert str(tmp_path) not in caplog.text

    run_in_child(check_store)


def test_a_read_only_folder_without_a_cache_is_refused(root):
    make_read_only(root)

    def check_folder():
        with pytest.raises(InputError, match="cannot be a cache"):
            Store(root / "new")

    run_in_child(check_folder)


def test_a_file_that_is_not_a_cache_is_left_unchanged(tmp_path):
    (tmp_path / DATABASE_FILE).write_text("my notes, more than a hundred bytes of them " * 10)
    with pytest.raises(InputError, match="cannot be used as a cache"):
        Store(tmp_path)
    second_folder = tmp_path / "second"
    second_folder.mkdir()
    with closing(sqlite3.connect(second_folder / DATABASE_FILE)) as raw:
        raw.execute("CREATE TABLE mine (a)")
    with pytest.raises(InputError, match="is not a cache of inbedder"):
        Store(second_folder)
    assert (tmp_path / DATABASE_FILE).read_text().startswith("my notes")


def test_a_cache_of_another_format_is_refused_by_its_number(tmp_path):
    Store(tmp_path).put(SPACE, ENTRIES.items())
    with sqlite3.connect(tmp_path / DATABASE_FILE) as raw:
        raw.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match=r"a cache of format 1, .* format 2.*inbedder cache clear"):
        Store(tmp_path)


def test_opening_waits_for_a_process_that_creates_the_file(tmp_path, monkeypatch):
    errors = [sqlite3.OperationalError("database is locked")] * 3
    open_for_writing = database._open_for_writing

    def raise_then_open(path):
        if errors:
            raise errors.pop()
        return open_for_writing(path)

    monkeypatch.setattr(database, "_open_for_writing", raise_then_open)
    assert open_file(tmp_path / DATABASE_FILE)[1] is False
    assert not errors


def test_a_cache_on_a_full_disk_is_read(tmp_path, monkeypatch, caplog):
    Store(tmp_path).put(SPACE, ENTRIES.items())

    def raise_disk_full(_path):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(database, "_open_for_writing", raise_disk_full)
    assert Store(tmp_path).get(SPACE, list(ENTRIES)) == ENTRIES
    assert caplog.text.count("cannot be written") == 1
    with pytest.raises(InputError, match=r"disk is full.*free space"):
        Store(tmp_path / "new")


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("value", [None, "text", 1, b"other"])
def test_an_entry_with_a_changed_part_is_not_intact(part, value):
    space, key, data = b"s" * 16, b"k" * 16, b"data"
    parts = [space, key, data, database.compute_checksum(space, key, data)]
    assert is_intact(*parts)
    parts[part] = value
    assert not is_intact(*parts)
    assert not is_intact(space, "key", data, b"")


def test_a_space_is_identified_by_its_whole_description():
    assert parse_description(hash_space(SPACE), '{"layer": -1, "model": "tiny"}') == SPACE
    for text in ('{"layer": -2, "model": "tiny"}', "{", "[]", "[" * 100_000, None, b"\xff"):
        assert parse_description(hash_space(SPACE), text) is None
