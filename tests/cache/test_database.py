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

ABOUT = {"model": "tiny", "layer": -1}
ENTRIES = {hash_entry(str(i), "Why?"): bytes([i]) * 1500 for i in range(50)}


def in_a_child(work):
    """Run something in a child process, which must not fail; one of root's has no right to write what is not its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def root():
    """A folder below the temporary folder itself, which every user may look into."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def take_rights(folder):
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.mark.parametrize("left_by", ["a run that ended", "a killed run"])
def test_a_good_cache_that_cannot_be_written_is_used_with_one_warning(root, tmp_path, caplog, left_by):
    read_only = root / "kept"
    store = Store(tmp_path / "kept")
    store.put(ABOUT, ENTRIES.items())
    if left_by == "a run that ended":
        del store
    shutil.copytree(tmp_path / "kept", read_only)
    assert len(list(read_only.iterdir())) == (1 if left_by == "a run that ended" else 3)  # the log and shared memory
    take_rights(root)

    def look():
        store = Store(read_only, "5M")
        assert store.read_only
        for _ in range(2):
            assert store.get(ABOUT, list(ENTRIES)) == ENTRIES
            assert store.put(ABOUT, [(hash_entry("new", ""), b"x")]) is False
        assert store.info() == [{**ABOUT, "entries": 50, "bytes": 75000}]
        assert store.verify() == []
        for refused in (store.repair, store.clear):
            with pytest.raises(InputError, match=r"cannot be (written|removed)"):
                refused()
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "nothing is added" in caplog.text

    in_a_child(look)


def test_a_folder_that_cannot_be_written_and_holds_no_cache_is_refused(root):
    take_rights(root)

    def look():
        with pytest.raises(InputError, match="cannot be a cache"):
            Store(root / "new")

    in_a_child(look)


def test_a_file_that_is_no_cache_is_left_alone(tmp_path):
    (tmp_path / DATABASE_FILE).write_text("my notes, more than a hundred bytes of them " * 10)
    with pytest.raises(InputError, match="cannot be used as a cache"):
        Store(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with closing(sqlite3.connect(other / DATABASE_FILE)) as raw:
        raw.execute("CREATE TABLE mine (a)")
    with pytest.raises(InputError, match="is no cache of inbedder"):
        Store(other)
    assert (tmp_path / DATABASE_FILE).read_text().startswith("my notes")


def test_a_cache_of_another_format_is_refused_by_its_number(tmp_path):
    Store(tmp_path).put(ABOUT, ENTRIES.items())
    with sqlite3.connect(tmp_path / DATABASE_FILE) as raw:
        raw.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match=r"a cache of format 1, .* format 2.*inbedder cache clear"):
        Store(tmp_path)


def test_others_that_make_the_file_at_once_are_waited_for(tmp_path, monkeypatch):
    errors = [sqlite3.OperationalError("database is locked")] * 3
    for_writing = database._open_for_writing

    def busy(path):
        if errors:
            raise errors.pop()
        return for_writing(path)

    monkeypatch.setattr(database, "_for_writing", busy)
    assert open_file(tmp_path / DATABASE_FILE)[1] is False
    assert not errors


def test_a_cache_on_a_full_disk_is_read(tmp_path, monkeypatch, caplog):
    Store(tmp_path).put(ABOUT, ENTRIES.items())

    def full(_path):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(database, "_for_writing", full)
    assert Store(tmp_path).get(ABOUT, list(ENTRIES)) == ENTRIES
    assert caplog.text.count("cannot be written") == 1
    with pytest.raises(InputError, match=r"disk is full.*make room"):
        Store(tmp_path / "new")


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("other", [None, "text", 1, b"other"])
def test_an_entry_whose_parts_changed_in_value_or_type_is_not_whole(part, other):
    space, key, data = b"s" * 16, b"k" * 16, b"data"
    parts = [space, key, data, database.compute_checksum(space, key, data)]
    assert is_intact(*parts)
    parts[part] = other
    assert not is_intact(*parts)
    assert not is_intact(space, "key", data, b"")


def test_a_space_is_known_by_all_that_it_is_about():
    assert parse_description(hash_space(ABOUT), '{"layer": -1, "model": "tiny"}') == ABOUT
    for text in ('{"layer": -2, "model": "tiny"}', "{", "[]", "[" * 100_000, None, b"\xff"):
        assert parse_description(hash_space(ABOUT), text) is None
