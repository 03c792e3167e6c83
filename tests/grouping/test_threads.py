import numpy as np
from threadpoolctl import threadpool_info

from inbedder.grouping.threads import MIN_ROWS_FOR_THREADS, limit_threads


def count_threads():
    return [pool["num_threads"] for pool in threadpool_info()]


def test_few_rows_are_computed_with_one_thread_and_many_with_all():
    np.ones((2, 2)) @ np.ones((2, 2))  # loads the pool
    before = count_threads()
    with limit_threads(MIN_ROWS_FOR_THREADS - 1):
        assert set(count_threads()) == {1}
    assert count_threads() == before
    with limit_threads(MIN_ROWS_FOR_THREADS):
        assert count_threads() == before
