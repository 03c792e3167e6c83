"""Cancellation of long work."""

import numpy as np
import pytest

from inbedder.grouping.partition import partition as parts
from inbedder.grouping.partition.number_of_groups import choose_number
from inbedder.grouping.partition.partition import make_regrouping, partition
from inbedder.grouping.partition.stability import measure_stability
from inbedder.runtime.cancellation import CANCELLATION_CHECK, check_cancelled
from tests.conftest import blobs


class StopError(Exception):
    pass


@pytest.fixture
def stop_after():
    """A function that lets a number of checks pass and raises at the next."""
    tokens, counts = [], []

    def stop(number):
        def check():
            counts.append(1)
            if len(counts) > number:
                raise StopError

        tokens.append(CANCELLATION_CHECK.set(check))
        return counts

    yield stop
    for token in reversed(tokens):
        CANCELLATION_CHECK.reset(token)


def test_without_a_check_nothing_is_cancelled():
    check_cancelled()


@pytest.mark.parametrize("number", [0, 3])
def test_the_choice_of_k_ends_between_numbers(stop_after, number):
    counts = stop_after(number)
    with pytest.raises(StopError):
        choose_number(blobs((30, 20, 10)))
    assert len(counts) == number + 1


@pytest.mark.parametrize("method", ["k-means", "agglomerative", "hdbscan"])
def test_resampling_ends_between_resamples(stop_after, method):
    vectors = blobs((30, 20, 10))
    labels = partition(vectors, 3).labels
    stop_after(3)
    with pytest.raises(StopError):
        measure_stability(vectors, labels, make_regrouping(method, len(vectors)))


def test_mini_batches_end_between_batches(stop_after, monkeypatch):
    monkeypatch.setattr(parts, "MAX_FULL_ROWS", 50)
    monkeypatch.setattr(parts, "BLOCK_ROWS", 10)
    counts = stop_after(2)
    with pytest.raises(StopError):
        partition(np.asarray(blobs((30, 20, 10))), 3)
    assert len(counts) == 3
