import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from inbedder.runtime import threads
from inbedder.runtime.threads import MIN_ROWS_FOR_THREADS, count_threads, limit_threads, map_side_by_side


@pytest.fixture
def four_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def count_pool_threads():
    return [pool["num_threads"] for pool in threadpool_info()]


def test_few_rows_are_computed_with_one_thread_and_many_with_all():
    np.ones((2, 2)) @ np.ones((2, 2))  # loads the pool
    before = count_pool_threads()
    with limit_threads(MIN_ROWS_FOR_THREADS - 1):
        assert set(count_pool_threads()) == {1}
    with limit_threads(MIN_ROWS_FOR_THREADS):
        assert count_pool_threads() == [min(number, count_threads()) for number in before]
    assert count_pool_threads() == before


def test_a_lower_setting_of_one_library_stays():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(1, user_api="blas"), limit_threads(MIN_ROWS_FOR_THREADS):
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}


def test_the_user_sets_the_threads(four_threads):
    assert count_threads() == 4
    torch.set_num_threads(3)
    assert count_threads() == 3


def test_without_a_setting_the_quota_of_the_system_counts(four_threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(threads, "_count_cpus", lambda: 2)
    assert count_threads() == 2


@pytest.mark.parametrize(("content", "count"), [("150000 100000\n", 2), ("max 100000\n", 64), ("50000 100000\n", 1)])
def test_the_quota_of_a_container_limits_the_cpus(monkeypatch, tmp_path, content, count):
    (tmp_path / "cpu.max").write_text(content)
    monkeypatch.setattr(threads, "CPU_QUOTA_FILE", tmp_path / "cpu.max")
    monkeypatch.setattr(threads.os, "process_cpu_count", lambda: 64, raising=False)
    assert threads._count_cpus.__wrapped__() == count


@pytest.mark.parametrize("count", [0, 1, 2, 4, 7, 30])
def test_results_are_in_the_order_of_the_batches(four_threads, count):
    assert list(map_side_by_side(lambda number: number * 2, range(count))) == [number * 2 for number in range(count)]


def test_batches_share_the_threads_and_the_last_ones_get_all(four_threads):
    numbers = list(map_side_by_side(lambda _batch: torch.get_num_threads(), range(6)))
    assert numbers == [1, 1, 1, 1, 4, 4]
    assert list(map_side_by_side(lambda _batch: torch.get_num_threads(), range(2))) == [2, 2]
    assert torch.get_num_threads() == 4


def test_batches_are_computed_at_the_same_time(four_threads):
    barrier = threading.Barrier(4, timeout=20)
    assert len(list(map_side_by_side(lambda _batch: barrier.wait(), range(4)))) == 4


def test_one_thread_computes_in_the_thread_of_the_caller(monkeypatch):
    monkeypatch.setattr(threads, "count_threads", lambda: 1)
    assert set(map_side_by_side(lambda _batch: threading.get_ident(), range(5))) == {threading.get_ident()}


def test_an_error_ends_the_work_and_later_batches_are_not_computed(four_threads):
    computed = []

    def fail_on_first(batch):
        if batch == 0:
            raise ValueError("bad batch")
        computed.append(batch)

    with pytest.raises(ValueError, match="bad batch"):
        list(map_side_by_side(fail_on_first, range(100)))
    assert len(computed) < 50
