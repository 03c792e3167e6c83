import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pair_batches import PairBatchSampler
from inbedder_finetune.contrastive.pairs import InstructedText, Pair


def pair(query, positive, negative="n", task="t"):
    return Pair(InstructedText("", query), InstructedText("", positive), (InstructedText("", negative),), task, "s")


ROWS = [
    pair(f"q{task}{i}", f"p{task}{i}", f"n{task}{i}", task) for task, size in (("a", 9), ("b", 4), ("c", 1)) for i in range(size)
]


def test_every_row_comes_once_an_epoch_in_batches_of_one_task():
    order = PairBatchSampler(ROWS, 4, seed=3)
    batches = list(order)
    assert sorted(row for batch in batches for row in batch) == list(range(14))
    assert all(len({ROWS[row].task for row in batch}) == 1 for batch in batches)
    assert sorted(len(batch) for batch in batches) == [1, 3, 3, 3, 4] and len(order) == 5


def test_the_order_depends_on_seed_and_epoch_only():
    first, second, reseeded = PairBatchSampler(ROWS, 4, 1), PairBatchSampler(ROWS, 4, 1), PairBatchSampler(ROWS, 4, 2)
    assert list(first) == list(first) == list(second) != list(reseeded)
    second.set_epoch(1)
    assert list(first) != list(second)


def test_mixed_batches_are_full_and_hold_several_tasks():
    order = PairBatchSampler(ROWS, 7, mixes_tasks=True)
    batches = list(order)
    assert sorted(row for batch in batches for row in batch) == list(range(14))
    assert [len(batch) for batch in batches] == [7, 7] and len(order) == 2
    assert all(len({ROWS[row].task for row in batch}) > 1 for batch in batches)


def test_fixed_batches_keep_their_order():
    batches = [[3, 1], [9, 10, 11], [0, 2]]
    order = PairBatchSampler(ROWS, 4, batches=batches)
    order.set_epoch(5)
    assert list(order) == batches and len(order) == 3


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[0, 1], [2, 9]], "Batch 1 mixes tasks: row 2 belongs to 'a', row 9 to 'b'. A batch must hold one task"),
        ([[0, 0]], "Batch 0 holds a row twice"),
        ([[]], "Batch 0 is empty"),
        ([[0, 14]], "Batch 0 names row 14 of 14"),
    ],
)
def test_bad_fixed_batches_are_named(batches, message):
    with pytest.raises(RecipeError, match=message):
        PairBatchSampler(ROWS, 4, batches=batches)
