import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from inbedder.cache import integrity
from inbedder.cache.database import DATABASE_FILE
from inbedder.cache.store import Store, hash_entry
from inbedder.errors import InputError
from inbedder.io.temporaries import is_temporary

SPACE = {"model": "tiny", "layer": -1}
SPACES = [SPACE, {"model": "other"}]
RNG = random.Random(0)
ENTRIES = [{hash_entry(str(i), str(j)): RNG.randbytes((5, 200, 1537, 9000)[i % 4]) for i in range(60)} for j in range(2)]
PARTS = ("", "-wal", "-shm")
DAMAGES = ("flip a bit", "flip many bits", "zero", "garble", "truncate", "swap pages", "the header", "empty")


@pytest.fixture(scope="module")
def left_by_a_killed_run(tmp_path_factory):
    """A cache whose last batches are only in the log."""
    folder = tmp_path_factory.mktemp("live")
    store = Store(folder / "open")
    for number in range(0, 60, 10):
        if number == 30:
            store._get_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for space, entries in zip(SPACES, ENTRIES, strict=True):
            store.put(space, list(entries.items())[number : number + 10])
    shutil.copytree(folder / "open", folder / "left")
    return folder / "left"


@pytest.fixture
def damage(left_by_a_killed_run, tmp_path):
    """Copy the cache and damage a file in the way that a seed chooses."""

    def make(seed):
        folder, rng = tmp_path / str(seed), random.Random(seed)
        shutil.copytree(left_by_a_killed_run, folder)
        damaged_file = folder / (DATABASE_FILE + PARTS[seed % 4 % 3])
        content, kind = bytearray(damaged_file.read_bytes()), rng.choice(DAMAGES)
        start, length = rng.randrange(len(content)), rng.choice((1, 100, 4096, 20000))
        end = min(len(content), start + length)
        if kind in ("flip a bit", "flip many bits", "the header"):
            for _ in range(1 if kind == "flip a bit" else 50 if kind == "flip many bits" else 4):
                content[rng.randrange(200 if kind == "the header" else len(content))] ^= 1 << rng.randrange(8)
        elif kind in ("zero", "garble"):
            content[start:end] = bytes(end - start) if kind == "zero" else rng.randbytes(end - start)
        elif kind == "swap pages":
            first, second = (slice(page * 4096, page * 4096 + 4096) for page in rng.sample(range(len(content) // 4096), 2))
            content[first], content[second] = content[second], content[first]
        else:
            del content[start if kind == "truncate" else 0 :]
        damaged_file.write_bytes(content)
        return folder

    return make


def count_entries(store):
    """Count the stored entries, and check that each is what was put."""
    stored = [store.get(space, list(entries)) for space, entries in zip(SPACES, ENTRIES, strict=True)]
    assert all(
        entries[key] == data
        for entries, stored_entries in zip(ENTRIES, stored, strict=True)
        for key, data in stored_entries.items()
    )
    return sum(map(len, stored))


@pytest.mark.parametrize("tens", range(24))
def test_a_damaged_cache_never_returns_wrong_data_and_is_repairable(damage, tens):
    for seed in range(tens * 10, tens * 10 + 10):
        folder = damage(seed)
        try:
            store = Store(folder)
        except InputError as error:
            assert "inbedder cache clear" in str(error) or "not a cache of inbedder" in str(error)
            integrity.remove(folder / DATABASE_FILE)
            assert not folder.exists()
            continue
        count_entries(store)
        for method in (store.info, store.measure_usage):
            try:
                method()
            except InputError as error:
                assert "inbedder cache verify --repair" in str(error)
        damages = store.verify()
        new = hash_entry("new", "")
        if store.put(SPACE, [(new, b"new")]) and not damages:
            assert store.get(SPACE, [new]) == {new: b"new"}
        if damages:
            count_entries(store)
            num_entries = store.repair()
            assert store.verify() == []
            assert num_entries - 1 <= count_entries(store) <= num_entries
            assert len(store.info()) <= 2
        store.clear()
        assert not folder.exists()


def read_first_pages(path):
    """Read the first page of each table and index of a file."""
    with closing(sqlite3.connect(path)) as raw:
        return dict(raw.execute("SELECT name, rootpage FROM sqlite_master"))


TREES = ["spaces", "entries", "uses", "settings", "sqlite_autoindex_spaces_1", "sqlite_autoindex_entries_1"]


@pytest.mark.parametrize("tree", TREES)
def test_a_table_without_its_first_page_is_repaired(tmp_path, caplog, tree):
    store = Store(tmp_path, "5M")
    store.put(SPACE, ENTRIES[0].items())
    del store
    page = read_first_pages(tmp_path / DATABASE_FILE)[tree]
    with (tmp_path / DATABASE_FILE).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    store = Store(tmp_path)
    for _ in range(3):
        count_entries(store)
        store.put(SPACE, ENTRIES[0].items())
    assert len([record for record in caplog.records if "cannot be read" in record.message]) <= 1
    assert len([record for record in caplog.records if "cannot be written" in record.message]) <= 1
    assert store.verify()
    num_entries = store.repair()
    assert store.verify() == []
    assert count_entries(store) == num_entries
    assert num_entries == (60 if tree not in ("spaces", "entries") else 0)


def test_a_damaged_table_name_is_reported_and_can_be_cleared(tmp_path):
    store = Store(tmp_path)
    del store
    content = (tmp_path / DATABASE_FILE).read_bytes()
    for name in (b"CREATE TABLE uses", b"CREATE TABLE entries"):
        (tmp_path / DATABASE_FILE).write_bytes(content.replace(name, name.replace(b"TABLE", b"\x81\x82BLE")))
        with pytest.raises(InputError, match="cannot be used as a cache"):
            Store(tmp_path)
        with pytest.raises(InputError, match="cannot be read"):
            integrity.rebuild(tmp_path / DATABASE_FILE)
    integrity.remove(tmp_path / DATABASE_FILE)
    assert not tmp_path.exists()


@pytest.mark.parametrize("table", ["spaces", "uses"])
def test_a_damaged_column_type_is_repaired(tmp_path, table):
    store = Store(tmp_path)
    store.put(SPACE, ENTRIES[0].items())
    del store
    content = (tmp_path / DATABASE_FILE).read_bytes()
    name = f"{table} (id INTEGER".encode()
    assert content.count(name) == 1
    (tmp_path / DATABASE_FILE).write_bytes(content.replace(name, name.replace(b"INTE", b"INTD")))
    store = Store(tmp_path)
    count_entries(store)
    assert store.repair() == 60
    assert count_entries(store) == 60
    assert store.verify() == []


def test_repair_keeps_intact_entries_the_limit_and_last_uses(tmp_path):
    store = Store(tmp_path, "5M")
    keys = [hash_entry(str(i), "") for i in range(600)]
    store.put(SPACE, [(key, os.urandom(1500)) for key in keys])
    usage = store.measure_usage()
    del store
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as raw:
        raw.execute("UPDATE entries SET sum = x'00' WHERE id = 5")
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
    with (tmp_path / DATABASE_FILE).open("r+b") as file:
        for page in range(pages // 2, pages // 2 + 5):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    store = Store(tmp_path)
    assert store.verify()
    num_entries = store.repair()
    assert 550 < num_entries < 599
    assert len(store.get(SPACE, keys)) == num_entries
    assert store.get(SPACE, keys[4:5]) == {}
    assert (store.measure_usage().limit, store.measure_usage().oldest_use) == (usage.limit, usage.oldest_use)
    assert store._get_connection().execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert list(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_cache_in_use_is_neither_cleared_nor_repaired(tmp_path):
    store = Store(tmp_path)
    store.put(SPACE, [(hash_entry("a", ""), b"a")])
    code = "import sys; from inbedder import cli; sys.argv[0] = 'inbedder'; cli.main()"
    arguments = [sys.executable, "-c", code, "cache", "clear", str(tmp_path)]
    process = subprocess.run(arguments, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (
        1,
        f"error: {tmp_path / DATABASE_FILE} is in use. Wait for the process that uses it, or stop it, and try again.\n",
    )
    with pytest.raises(InputError, match="is in use"):
        integrity.rebuild(tmp_path / DATABASE_FILE)
    assert store.put(SPACE, [(hash_entry("b", ""), b"b")])
    assert len(store.get(SPACE, [hash_entry("a", ""), hash_entry("b", "")])) == 2
    del store
    assert subprocess.run(arguments, capture_output=True, text=True).returncode == 0
    assert not tmp_path.exists()


def test_an_unreadable_file_is_removed_with_its_logs_only(tmp_path):
    for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-shm", "keep.txt"):
        (tmp_path / name).write_bytes(b"no database " * 100)
    integrity.remove(tmp_path / DATABASE_FILE)
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]


def test_a_file_without_readable_entries_is_not_repaired(tmp_path):
    (tmp_path / DATABASE_FILE).write_bytes(b"no database " * 100)
    with pytest.raises(InputError, match=r"cannot be read.*inbedder cache clear"):
        integrity.rebuild(tmp_path / DATABASE_FILE)
    assert (tmp_path / DATABASE_FILE).read_bytes() == b"no database " * 100


def test_a_failed_repair_leaves_the_damaged_file_unchanged(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put(SPACE, ENTRIES[0].items())

    def raise_disk_full(_connection):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(integrity, "make_tables", raise_disk_full)
    with pytest.raises(InputError, match=r"was not repaired .database or disk is full. and is unchanged"):
        store.repair()
    monkeypatch.undo()
    assert count_entries(Store(tmp_path)) == 60
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


KILLED_REPAIR = """
import os, signal, sys
from inbedder.cache import integrity
from inbedder.cache.store import Store
integrity._remove_logs = lambda path: os.kill(os.getpid(), signal.SIGKILL)
Store(sys.argv[1]).repair()
"""


@pytest.mark.parametrize("finish", ["repair", "clear"])
def test_the_next_change_removes_what_a_killed_repair_left(tmp_path, finish):
    store = Store(tmp_path / "cache")
    store.put(SPACE, list(ENTRIES[0].items()))
    del store
    assert subprocess.run([sys.executable, "-c", KILLED_REPAIR, tmp_path / "cache"], check=False).returncode == -9
    assert any(is_temporary(name) for name in os.listdir(tmp_path / "cache"))
    getattr(Store(tmp_path / "cache"), finish)()
    if finish == "clear":
        assert not (tmp_path / "cache").exists()
    else:
        assert os.listdir(tmp_path / "cache") == [DATABASE_FILE]
        assert Store(tmp_path / "cache").get(SPACE, list(ENTRIES[0])) == ENTRIES[0]
