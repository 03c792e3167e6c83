import os
import sqlite3
from contextlib import closing

import pytest

from inbedder import InBedder
from inbedder.cache import size_limit, store
from inbedder.cache.database import DATABASE_FILE
from inbedder.cache.size_limit import parse_size
from inbedder.cache.store import Store, hash_entry
from inbedder.errors import InputError

SPACE = {"model": "tiny", "layer": -1}


def make_keys(numbers):
    return [hash_entry(str(i), "") for i in numbers]


def fill(store, numbers, size=2000):
    for start in range(0, len(numbers), 50):
        assert store.put(SPACE, [(key, os.urandom(size)) for key in make_keys(numbers[start : start + 50])])


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    times = [1_000_000_000.0]
    for module in (store, size_limit):
        monkeypatch.setattr(module.time, "time", lambda: times[0])
    return times


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5G", 5 * 10**9),
        ("1.5 GB", 15 * 10**8),
        ("500m", 5 * 10**8),
        ("2GiB", 2 * 2**30),
        ("1000000", 10**6),
        (10**7, 10**7),
        ("2T", 2 * 10**12),
        ("unlimited", None),
    ],
)
def test_sizes_with_units_are_parsed(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "5X", "-5G", "5G5", "nan", "1e9", True, -1, 0, "999K", "5 0G"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(InputError, match=r"is not a valid cache size|too small"):
        parse_size(text)


def test_a_cache_stays_within_its_limit_and_its_file_shrinks(tmp_path):
    store = Store(tmp_path)
    fill(store, range(1500))
    assert store.measure_usage().size > 3 * 10**6
    store = Store(tmp_path, "2M")
    fill(store, range(1500, 1550))
    assert store.measure_usage().size <= 2 * 10**6
    assert (tmp_path / DATABASE_FILE).stat().st_size == store.measure_usage().size
    assert (tmp_path / f"{DATABASE_FILE}-wal").stat().st_size == 0
    for start in range(1550, 4000, 50):
        fill(store, range(start, start + 50))
        assert store.measure_usage().size <= 2 * 10**6
    assert store.info()[0]["bytes"] > 10**6
    assert len(store.get(SPACE, make_keys(range(3500, 4000)))) == 500
    assert store.verify() == []


def test_the_least_recently_used_entries_are_evicted_first(tmp_path, clock):
    store = Store(tmp_path, "2M")
    fill(store, range(600))
    clock[0] += 3600
    assert len(store.get(SPACE, make_keys(range(100)))) == 100
    clock[0] += 3600
    fill(store, range(600, 1100))
    numbers = {number for number in range(1100) if store.get(SPACE, make_keys([number]))}
    assert {*range(100), *range(600, 1100)} <= numbers
    assert len(numbers) < 1000
    assert numbers >= {number for number in range(600) if number >= min(numbers & set(range(100, 600)), default=600)}


def test_repeated_lookups_write_nothing(tmp_path, clock):
    store = Store(tmp_path)
    fill(store, range(50))
    clock[0] += 3600
    store.get(SPACE, make_keys(range(50)))
    before = store._get_connection().total_changes
    clock[0] += 30
    store.get(SPACE, make_keys(range(50)))
    assert store._get_connection().total_changes == before
    clock[0] += 60
    store.get(SPACE, make_keys(range(50)))
    assert store._get_connection().total_changes == before + 50


def test_a_lookup_does_not_wait_to_record_its_use(tmp_path, clock):
    store = Store(tmp_path)
    fill(store, range(50))
    clock[0] += 3600
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert len(store.get(SPACE, make_keys(range(50)))) == 50
        writer.execute("ROLLBACK")
    assert store.measure_usage().oldest_use == clock[0] - 3600
    assert len(store.get(SPACE, make_keys(range(50)))) == 50
    assert store.measure_usage().oldest_use == clock[0]


def test_the_limit_is_stored_until_another_is_set(tmp_path):
    Store(tmp_path, "3M")
    assert Store(tmp_path).measure_usage().limit == 3 * 10**6
    assert Store(tmp_path, 4_000_000).measure_usage().limit == 4 * 10**6
    assert Store(tmp_path, "unlimited").measure_usage().limit is None
    assert Store(tmp_path).measure_usage().limit is None


def test_usage_reports_the_oldest_use(tmp_path, clock):
    store = Store(tmp_path)
    assert store.measure_usage().oldest_use is None
    fill(store, range(2))
    clock[0] += 3600
    store.get(SPACE, make_keys([0]))
    assert store.measure_usage().oldest_use == 1_000_000_000
    store.get(SPACE, make_keys([1]))
    assert store.measure_usage().oldest_use == 1_000_003_600


def test_entries_larger_than_the_limit_do_not_break_the_cache(tmp_path):
    store = Store(tmp_path, "1M")
    assert store.put(SPACE, [(key, bytes(3 * 10**6)) for key in make_keys(range(2))])
    assert store.measure_usage().size <= 10**6
    fill(store, range(10, 20))
    assert len(store.get(SPACE, make_keys(range(10, 20)))) == 10


def test_a_model_takes_the_size_of_its_cache(make_model, tmp_path):
    model = InBedder(make_model("opt"), cache=tmp_path, cache_size="5G")
    assert model.pipeline.store.measure_usage().limit == 5 * 10**9
    with pytest.raises(InputError, match="cache_size needs a cache"):
        InBedder(make_model("opt"), cache_size="5G")
    with pytest.raises(InputError, match=r"is not a valid cache size"):
        InBedder(make_model("opt"), cache=tmp_path, cache_size="much")


def test_evaluation_takes_the_size_of_its_models_cache(make_model, tmp_path):
    from inbedder_evaluation.embedders import make_embedders

    make_embedders(make_model("opt"), cache=tmp_path, cache_size="5G")
    assert Store(tmp_path).measure_usage().limit == 5 * 10**9
