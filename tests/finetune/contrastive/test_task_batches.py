import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pairs import Instructed, Pair
from inbedder_finetune.contrastive.task_batches import TaskBatchSampler


def pair(query, positive, negative="n", task="t"):
    return Pair(Instructed("", query), Instructed("", positive), (Instructed("", negative),), task, "s")


ROWS = [
    pair(f"q{task}{i}", f"p{task}{i}", f"n{task}{i}", task) for task, size in (("a", 9), ("b", 4), ("c", 1)) for i in range(size)
]


def test_every_row_comes_once_an_epoch_in_batches_of_one_task():
    order = TaskBatchSampler(ROWS, 4, seed=3)
    batches = list(order)
    assert sorted(row for batch in batches for row in batch) == list(range(14))
    assert all(len({ROWS[row].task for row in batch}) == 1 for batch in batches)
    assert sorted(len(batch) for batch in batches) == [1, 3, 3, 3, 4] and len(order) == 5


def test_the_order_depends_on_seed_and_epoch_alone():
    first, second, other = TaskBatchSampler(ROWS, 4, 1), TaskBatchSampler(ROWS, 4, 1), TaskBatchSampler(ROWS, 4, 2)
    assert list(first) == list(first) == list(second) != list(other)
    second.set_epoch(1)
    assert list(first) != list(second)


def test_rows_that_share_a_text_go_apart():
    shared = [pair(f"q{i}", f"p{i // 4}", "n") for i in range(32)]  # eight passages under four questions each
    for batch in TaskBatchSampler(shared, 8):
        assert len({shared[row].positive.text for row in batch}) == 8
    chain = [pair(str(i), str(i + 1), str(i + 2)) for i in range(200)]
    near = [abs(one - other) for batch in TaskBatchSampler(chain, 8) for one in batch for other in batch if one < other]
    assert sum(distance <= 2 for distance in near) <= 3  # chance brings 14 together


def test_equal_rows_stay_in_even_batches_where_there_is_no_room():
    same = [pair("q", "p")] * 10
    assert sorted(len(batch) for batch in TaskBatchSampler(same, 4)) == [3, 3, 4]


def test_given_batches_come_as_they_are():
    given = [[3, 1], [9, 10, 11], [0, 2]]
    order = TaskBatchSampler(ROWS, 4, batches=given)
    order.set_epoch(5)
    assert list(order) == given and len(order) == 3


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[0, 1], [2, 9]], "Batch 1 mixes task ids: row 2 is of 'a', row 9 of 'b'. Give batches of one task"),
        ([[0, 0]], "Batch 0 holds a row twice"),
        ([[]], "Batch 0 is empty"),
        ([[0, 14]], "Batch 0 names row 14 of 14"),
    ],
)
def test_given_batches_that_cannot_be_learned_are_named(batches, message):
    with pytest.raises(RecipeError, match=message):
        TaskBatchSampler(ROWS, 4, batches=batches)
