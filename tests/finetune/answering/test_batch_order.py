from hypothesis import given, settings
from hypothesis import strategies as st

from inbedder_finetune.answering.batch_order import GroupedSampler


def sampler(lengths, group=1, batch_size=4, texts=None, questions=None, seed=0):
    rows = range(len(lengths))
    return GroupedSampler(lengths, texts or list(rows), questions or list(rows), batch_size, group, seed)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=60)
def test_every_row_comes_once_an_epoch(lengths, batch_size, group):
    keys = [length % 7 for length in lengths]
    order = list(sampler(lengths, group, batch_size, keys, [key % 3 for key in keys]))
    assert sorted(order) == list(range(len(lengths)))


def test_the_order_depends_on_seed_and_epoch_only():
    lengths = [i % 13 + 1 for i in range(100)]
    one, two = sampler(lengths), sampler(lengths)
    assert list(one) == list(two) == list(one)
    two.set_epoch(1)
    assert list(one) != list(two)
    assert list(one) != list(sampler(lengths, seed=1))


def test_a_batch_holds_rows_of_similar_length_and_the_longest_comes_first():
    lengths = [(37 * i) % 100 + 1 for i in range(200)]
    order = list(sampler(lengths, batch_size=8))
    batches = [[lengths[row] for row in order[start : start + 8]] for start in range(0, 200, 8)]
    assert max(lengths) in batches[0]
    assert sum(max(batch) - min(batch) for batch in batches) < 25 * 10


def test_without_grouping_by_length_rows_come_at_random():
    lengths = [(37 * i) % 100 + 1 for i in range(2000)]
    rows = range(2000)
    one, two = (GroupedSampler(lengths, rows, rows, 8, group_by_length=False) for _ in range(2))
    order = list(one)
    assert sorted(order) == list(rows) and order == list(two) == list(one)
    two.set_epoch(1)
    assert order != list(two)
    batches = [[lengths[row] for row in order[start : start + 8]] for start in range(0, 2000, 8)]
    assert sum(max(batch) - min(batch) for batch in batches) > 250 * 65  # 78 is expected of eight random lengths


def test_groups_make_rows_of_one_text_or_question_neighbours():
    texts, questions = [i // 4 for i in range(64)], [i % 4 for i in range(64)]

    def share_of_related_neighbours(group):
        order = list(sampler([5] * 64, group, 8, texts, questions))
        neighbours = list(zip(order[::2], order[1::2], strict=True))
        return sum(texts[a] == texts[b] or questions[a] == questions[b] for a, b in neighbours) / len(neighbours)

    assert share_of_related_neighbours(4) > 0.7 > share_of_related_neighbours(1)


def test_groups_by_text_hold_rows_of_one_text_only():
    texts, questions = [i // 4 for i in range(64)], [i % 4 for i in range(64)]
    order = list(GroupedSampler([5] * 64, texts, questions, 8, group=4, by_text=True))
    assert all(len({texts[row] for row in order[start : start + 4]}) == 1 for start in range(0, 64, 4))
