import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pairs import InstructedText, Pair
from inbedder_finetune.contrastive.task_batches import TaskBatchSampler


def pair(query, positive, negative="n", task="t"):
    return Pair(InstructedText("", query), InstructedText("", positive), (InstructedText("", negative),), task, "s")


ROWS = [
    pair(f"q{task}{i}", f"p{task}{i}", f"n{task}{i}", task) for task, size in (("a", 9), ("b", 4), ("c", 1)) for i in range(size)
]


def test_every_row_comes_once_an_epoch_in_batches_of_one_task():
    order = TaskBatchSampler(ROWS, 4, seed=3)
    batches = list(order)
    assert sorted(row for batch in batches for row in batch) == list(range(14))
    assert all(len({ROWS[row].task for row in batch}) == 1 for batch in batches)
    assert sorted(len(batch) for batch in batches) == [1, 3, 3, 3, 4] and len(order) == 5


def test_the_order_depends_on_seed_and_epoch_only():
    first, second, reseeded = TaskBatchSampler(ROWS, 4, 1), TaskBatchSampler(ROWS, 4, 1), TaskBatchSampler(ROWS, 4, 2)
    assert list(first) == list(first) == list(second) != list(reseeded)
    second.set_epoch(1)
    assert list(first) != list(second)


def test_rows_that_share_a_text_are_separated():
    shared = [pair(f"q{i}", f"p{i // 4}", "n") for i in range(32)]  # eight passages under four questions each
    for batch in TaskBatchSampler(shared, 8):
        assert len({shared[row].positive.text for row in batch}) == 8
    chain = [pair(str(i), str(i + 1), str(i + 2)) for i in range(200)]
    distances = [second - first for batch in TaskBatchSampler(chain, 8) for first in batch for second in batch if first < second]
    assert sum(distance <= 2 for distance in distances) <= 3  # 14 in random batches


def test_equal_rows_are_spread_evenly():
    equal_pairs = [pair("q", "p")] * 10
    assert sorted(len(batch) for batch in TaskBatchSampler(equal_pairs, 4)) == [3, 3, 4]


def test_fixed_batches_keep_their_order():
    batches = [[3, 1], [9, 10, 11], [0, 2]]
    order = TaskBatchSampler(ROWS, 4, batches=batches)
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
        TaskBatchSampler(ROWS, 4, batches=batches)
