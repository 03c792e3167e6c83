import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from inbedder.cache.database import DATABASE_FILE
from inbedder.cache.store import Store, hash_entry

SPACE = {"model": "tiny", "layer": -1}
KEYS = [hash_entry(text, "Why?") for text in ("a", "b", "", "\ud800", "🙂")]


def test_another_store_finds_the_entries(tmp_path):
    assert Store(tmp_path).put(SPACE, [(key, b"x" * i) for i, key in enumerate(KEYS)])
    assert Store(tmp_path).get(SPACE, [*KEYS, hash_entry("c", "Why?")]) == {key: b"x" * i for i, key in enumerate(KEYS)}


@pytest.mark.parametrize("change", [{"weights": "tiny2"}, {"layer": 1}, {"new": 0}])
def test_another_space_finds_no_entry(tmp_path, change):
    store = Store(tmp_path)
    store.put(SPACE, [(KEYS[0], b"x")])
    assert store.get({**SPACE, **change}, KEYS) == {}


def test_more_keys_than_one_query_holds(tmp_path):
    store = Store(tmp_path)
    keys = [hash_entry(str(i), "") for i in range(1300)]
    store.put(SPACE, [(key, key) for key in keys])
    assert store.get(SPACE, keys) == {key: key for key in keys}


@pytest.mark.parametrize("column", ["data", "key"])
def test_a_damaged_or_misplaced_entry_is_counted_and_never_returned(tmp_path, caplog, column):
    store = Store(tmp_path)
    store.put(SPACE, [(KEYS[0], b"first"), (KEYS[1], b"second")])
    with sqlite3.connect(tmp_path / DATABASE_FILE) as raw:
        raw.execute(f"UPDATE entries SET {column} = ? WHERE key = ?", (KEYS[3], KEYS[0]))
    key = KEYS[0] if column == "data" else KEYS[3]
    assert store.get(SPACE, [key, KEYS[1]]) == {KEYS[1]: b"second"}
    assert "1 damaged entries are computed again" in caplog.text
    assert key.hex() not in caplog.text
    assert str(tmp_path) not in caplog.text
    assert store.verify() == [f"entry {key.hex()} of space 1 is damaged"]
    raw.close()
    assert store.repair() == 1
    assert store.verify() == []
    assert store.get(SPACE, [key, KEYS[1]]) == {KEYS[1]: b"second"}


def test_a_damaged_entry_is_replaced(tmp_path):
    store = Store(tmp_path)
    store.put(SPACE, [(KEYS[0], b"first")])
    with sqlite3.connect(tmp_path / DATABASE_FILE) as raw:
        raw.execute("UPDATE entries SET data = x'00'")
    assert store.put(SPACE, [(KEYS[0], b"again")])
    assert store.get(SPACE, KEYS) == {KEYS[0]: b"again"}
    assert store.verify() == []


def test_a_full_disk_warns_once_and_old_entries_are_found(tmp_path, caplog):
    store = Store(tmp_path)
    assert store.put(SPACE, [(KEYS[0], b"x")])
    connection = store._get_connection()
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
    for number in range(5):
        assert not store.put(SPACE, [(hash_entry(str(number), ""), bytes(100_000))])
    assert store.get(SPACE, KEYS) == {KEYS[0]: b"x"}
    assert [record.getMessage().split(". ")[0] for record in caplog.records] == [
        f"The cache {tmp_path.name!r} cannot be written (database or disk is full)"
    ]
    connection.execute("PRAGMA max_page_count = 100000")
    assert store.put(SPACE, [(KEYS[1], b"y")])
    assert store.verify() == []


@pytest.mark.parametrize("event", ["removed", "replaced by a directory", "replaced by rubbish", "another program's file"])
def test_a_file_that_is_removed_or_replaced_is_survived(tmp_path, caplog, event):
    store = Store(tmp_path / "kept")
    store.put(SPACE, [(KEYS[0], b"x")])
    shutil.rmtree(tmp_path / "kept")
    if event == "replaced by a directory":
        (tmp_path / "kept" / DATABASE_FILE).mkdir(parents=True)
    elif event == "replaced by rubbish":
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / DATABASE_FILE).write_bytes(b"rubbish " * 1000)
    elif event == "another program's file":
        (tmp_path / "kept").mkdir()
        with sqlite3.connect(tmp_path / "kept" / DATABASE_FILE) as raw:
            raw.execute("CREATE TABLE other (number INT)")
    for _ in range(2):
        assert store.put(SPACE, [(KEYS[1], b"y")]) is (event == "removed")
        assert store.get(SPACE, KEYS) == ({KEYS[1]: b"y"} if event == "removed" else {})
    assert len(caplog.records) == (0 if event == "removed" else 2)
    assert all("The cache 'kept' cannot be" in record.getMessage() for record in caplog.records)
    assert str(tmp_path) not in caplog.text
    if event == "removed":
        assert Store(tmp_path / "kept").get(SPACE, KEYS) == {KEYS[1]: b"y"}


def test_the_connection_of_a_thread_that_ended_is_closed(tmp_path):
    store = Store(tmp_path)
    for _ in range(3):
        thread = threading.Thread(target=store.put, args=(SPACE, [(KEYS[0], b"x")]))
        thread.start()
        thread.join()
    store.clear()
    assert not tmp_path.exists()


def test_the_border_of_text_and_instruction_changes_the_key():
    pairs = [("ab", "c"), ("a", "bc"), ("c", "ab"), ("", "abc"), ("abc", ""), ("ab", "c\ud800")]
    assert len({hash_entry(*pair) for pair in pairs}) == len(pairs)


def test_clear_removes_only_its_own_files(tmp_path):
    (tmp_path / "keep.txt").write_text("mine")
    store = Store(tmp_path)
    store.put(SPACE, [(KEYS[0], b"x")])
    store.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]
    assert Store(tmp_path).get(SPACE, KEYS) == {}


def test_info_counts_entries_and_bytes(tmp_path):
    store = Store(tmp_path)
    store.put(SPACE, [(KEYS[0], b"xx"), (KEYS[1], b"yyy")])
    store.put({"model": "other"}, [])
    assert store.info() == [{**SPACE, "entries": 2, "bytes": 5}, {"model": "other", "entries": 0, "bytes": 0}]


def test_a_failed_transaction_stores_nothing(tmp_path):
    store = Store(tmp_path)

    def entries():
        yield KEYS[0], b"x"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(SPACE, entries())
    assert store.get(SPACE, KEYS) == {}
    assert store.put(SPACE, [(KEYS[0], b"y")])


def test_a_store_that_outlives_its_module_ends_in_silence(tmp_path):
    code = "import sys; from inbedder.cache import store; store.last = store.Store(sys.argv[1]); sys.kept_module = store"
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_threads_and_processes_write_at_once(tmp_path):
    store = Store(tmp_path)

    def write(start):
        for i in range(start, start + 50):
            assert store.put(SPACE, [(hash_entry(str(i), ""), str(i).encode())])

    child = os.fork()
    if child == 0:
        write(1000)
        os._exit(0)
    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    keys = {hash_entry(str(i), ""): str(i).encode() for start in (0, 100, 1000) for i in range(start, start + 50)}
    assert store.get(SPACE, list(keys)) == keys


def test_a_killed_writer_leaves_whole_batches(tmp_path):
    for _ in range(10):
        child = os.fork()
        if child == 0:
            store = Store(tmp_path)
            for batch in range(10_000):
                store.put(SPACE, [(hash_entry(f"{batch} {i}", ""), bytes(100)) for i in range(8)])
            os._exit(0)
        threading.Event().wait(0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        store = Store(tmp_path)
        assert store.verify() == []
        assert store.info()[0]["entries"] % 8 == 0 if store.info() else True
