import os
import signal
import sqlite3
import threading

import pytest

from inbedder.cache import FILE, Store, entry_key
from inbedder.errors import InputError

ABOUT = {"model": "tiny", "layer": -1}
KEYS = [entry_key(text, "Why?") for text in ("a", "b", "", "\ud800", "🙂")]


def test_what_is_put_is_found_again_by_another_store(tmp_path):
    assert Store(tmp_path).put(ABOUT, [(key, b"x" * i) for i, key in enumerate(KEYS)])
    assert Store(tmp_path).get(ABOUT, [*KEYS, entry_key("c", "Why?")]) == {key: b"x" * i for i, key in enumerate(KEYS)}


@pytest.mark.parametrize("other", [{"model": "tiny2"}, {"layer": 1}, {"new": 0}])
def test_any_change_of_what_an_entry_depends_on_finds_nothing(tmp_path, other):
    store = Store(tmp_path)
    store.put(ABOUT, [(KEYS[0], b"x")])
    assert store.get({**ABOUT, **other}, KEYS) == {}


def test_more_keys_than_one_query_takes(tmp_path):
    store = Store(tmp_path)
    keys = [entry_key(str(i), "") for i in range(1300)]
    store.put(ABOUT, [(key, key) for key in keys])
    assert store.get(ABOUT, keys) == {key: key for key in keys}


@pytest.mark.parametrize("column", ["data", "key"])
def test_a_damaged_or_misplaced_entry_is_named_and_never_returned(tmp_path, caplog, column):
    store = Store(tmp_path)
    store.put(ABOUT, [(KEYS[0], b"first"), (KEYS[1], b"second")])
    with sqlite3.connect(tmp_path / FILE) as raw:
        raw.execute(f"UPDATE entries SET {column} = ? WHERE key = ?", (KEYS[3], KEYS[0]))
    asked = KEYS[0] if column == "data" else KEYS[3]
    assert store.get(ABOUT, [asked, KEYS[1]]) == {KEYS[1]: b"second"}
    assert asked.hex() in caplog.text
    assert store.verify() == [f"entry {asked.hex()} of space 1 is damaged"]
    assert store.verify(remove=True)
    assert store.verify() == []


def test_texts_and_instructions_do_not_run_into_each_other():
    pairs = [("ab", "c"), ("a", "bc"), ("c", "ab"), ("", "abc"), ("abc", ""), ("ab", "c\ud800")]
    assert len({entry_key(*pair) for pair in pairs}) == len(pairs)


def test_a_file_that_is_no_store_is_left_alone(tmp_path):
    (tmp_path / FILE).write_text("my notes, more than a hundred bytes of them " * 10)
    with pytest.raises(InputError, match="cannot be used as a cache"):
        Store(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / FILE) as raw:
        raw.execute("CREATE TABLE mine (a)")
    with pytest.raises(InputError, match="is no cache of this version"):
        Store(other)
    assert (tmp_path / FILE).read_text().startswith("my notes")


def test_clear_removes_its_own_files_alone(tmp_path):
    (tmp_path / "keep.txt").write_text("mine")
    store = Store(tmp_path)
    store.put(ABOUT, [(KEYS[0], b"x")])
    store.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]
    assert Store(tmp_path).get(ABOUT, KEYS) == {}


def test_info_counts_entries_and_bytes(tmp_path):
    store = Store(tmp_path)
    store.put(ABOUT, [(KEYS[0], b"xx"), (KEYS[1], b"yyy")])
    store.put({"model": "other"}, [])
    assert store.info() == [{**ABOUT, "entries": 2, "bytes": 5}, {"model": "other", "entries": 0, "bytes": 0}]


def test_a_failed_transaction_keeps_nothing_of_it(tmp_path):
    store = Store(tmp_path)

    def entries():
        yield KEYS[0], b"x"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(ABOUT, entries())
    assert store.get(ABOUT, KEYS) == {}
    assert store.put(ABOUT, [(KEYS[0], b"y")])


def test_threads_and_processes_write_at_once(tmp_path):
    store = Store(tmp_path)

    def write(start):
        for i in range(start, start + 50):
            assert store.put(ABOUT, [(entry_key(str(i), ""), str(i).encode())])

    child = os.fork()
    if child == 0:
        write(1000)
        os._exit(0)
    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert os.waitpid(child, 0)[1] == 0
    keys = {entry_key(str(i), ""): str(i).encode() for start in (0, 100, 1000) for i in range(start, start + 50)}
    assert store.get(ABOUT, list(keys)) == keys


def test_a_killed_writer_leaves_whole_batches(tmp_path):
    for _ in range(10):
        child = os.fork()
        if child == 0:
            store = Store(tmp_path)
            for batch in range(10_000):
                store.put(ABOUT, [(entry_key(f"{batch} {i}", ""), bytes(100)) for i in range(8)])
            os._exit(0)
        threading.Event().wait(0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        store = Store(tmp_path)
        assert store.verify() == []
        assert store.info()[0]["entries"] % 8 == 0 if store.info() else True
