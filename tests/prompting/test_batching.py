import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inbedder.prompting.batching import pad, split_into_batches


@given(st.lists(st.integers(0, 600), max_size=80), st.integers(1, 20), st.integers(1, 2000))
def test_batches_hold_every_row_once_within_the_budget(lengths, batch_size, budget):
    batches = [batch.tolist() for batch in split_into_batches(lengths, batch_size, budget)]
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


def test_the_longest_rows_come_first():
    assert [batch.tolist() for batch in split_into_batches([1, 9, 5], 2)] == [[1, 2], [0]]


def test_padding_stands_on_the_side_that_was_asked_for():
    rows = [np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32)]
    left_ids, left_mask = pad(rows, 0, "left")
    right_ids, right_mask = pad(rows, 0)
    assert left_ids.tolist() == [[5, 6], [0, 7]]
    assert right_ids.tolist() == [[5, 6], [7, 0]]
    assert left_mask.tolist() == [[True, True], [False, True]]
    assert right_mask.tolist() == [[True, True], [True, False]]
