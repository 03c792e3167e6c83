import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetune.curriculum import tours
from finetune.curriculum.tours import greedy_tour, order_tasks, reversal_gains, swap_gains, tour_similarity, two_opt
from inbedder.errors import InputError
from scripts.compare_tours import drawn, of_all


@pytest.mark.parametrize("width", [0, 3])
def test_nine_tasks_get_the_best_of_all_tours(width):
    for seed in range(10):
        similarity = drawn(9, seed, width)
        found = tour_similarity(similarity, order_tasks(similarity, steps=100_000, seed=seed))
        assert found == pytest.approx(of_all(similarity), abs=1e-9), seed


@pytest.mark.parametrize("tasks", [4, 5, 6])
def test_the_smallest_tours_are_the_best_of_all_too(tasks):
    for seed in range(10):
        similarity = drawn(tasks, seed)
        found = tour_similarity(similarity, order_tasks(similarity, steps=20_000, seed=seed))
        assert found == pytest.approx(of_all(similarity), abs=1e-9)


def test_many_tasks_come_near_to_two_opt():
    for width in (0, 64):
        similarity = drawn(120, 1, width)
        compared = tour_similarity(similarity, two_opt(similarity, greedy_tour(similarity)))
        assert tour_similarity(similarity, order_tasks(similarity, steps=200_000)) > 0.97 * compared


@given(st.integers(4, 30), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_gain_of_a_move_equals_recomputation(tasks, seed):
    draw = np.random.default_rng(seed)
    similarity, tour = drawn(tasks, seed), draw.permutation(tasks)
    first = draw.integers(tasks, size=20)
    second = (first + draw.integers(1, tasks, size=20)) % tasks
    swapped, reversed_ = swap_gains(similarity, tour, first, second), reversal_gains(similarity, tour, first, second)
    before = tour_similarity(similarity, tour)
    for i, j, by_swap, by_reversal in zip(first, second, swapped, reversed_, strict=True):
        after = tour.copy()
        after[[i, j]] = after[[j, i]]
        assert tour_similarity(similarity, after) == pytest.approx(before + by_swap, abs=1e-9)
        places = (i + 1 + np.arange((j - i) % tasks)) % tasks
        after = tour.copy()
        after[places] = after[places[::-1]]
        assert tour_similarity(similarity, after) == pytest.approx(before + by_reversal, abs=1e-9)


@given(st.integers(0, 25), st.integers(0, 10**6), st.sampled_from([0, 1, 127, 129, 3000]))
@settings(max_examples=40, deadline=None)
def test_the_order_holds_every_task_once_and_is_never_worse_than_its_start(tasks, seed, steps):
    similarity = drawn(tasks, seed, 3)
    found = order_tasks(similarity, steps=steps, seed=seed)
    assert sorted(found) == list(range(tasks))
    assert found == order_tasks(similarity, steps=steps, seed=seed)
    start = order_tasks(similarity, steps=0, seed=seed)
    assert tour_similarity(similarity, found) >= tour_similarity(similarity, start)


@given(st.integers(2, 12), st.integers(0, 10**6), st.integers(0, 11))
@settings(max_examples=40, deadline=None)
def test_a_tour_is_worth_the_same_from_any_place_in_both_directions_and_under_other_numbers(tasks, seed, turn):
    similarity, order = drawn(tasks, seed), list(np.random.default_rng(seed).permutation(tasks))
    worth = tour_similarity(similarity, order)
    turned = order[turn % tasks :] + order[: turn % tasks]
    assert tour_similarity(similarity, turned) == tour_similarity(similarity, order[::-1]) == worth
    names = np.random.default_rng(seed + 1).permutation(tasks)
    assert tour_similarity(similarity[np.ix_(names, names)], np.argsort(names)[order]) == worth


def test_the_order_starts_at_task_0_and_the_seed_alone_moves_it():
    similarity = drawn(40, 0, 8)
    one, again = (order_tasks(similarity, steps=20_000, seed=1) for _ in range(2))
    assert one == again
    assert one[0] == 0 and one[1] < one[-1]


def test_two_opt_undoes_a_crossing():
    angles = np.arange(8) * np.pi / 4
    similarity = np.cos(angles[:, None] - angles)
    assert two_opt(similarity, [0, 1, 5, 4, 3, 2, 6, 7]) == list(range(8))
    assert greedy_tour(similarity)[:2] in ([0, 1], [0, 7])


def test_equal_similarities_leave_the_start_and_the_diagonal_is_not_read():
    assert sorted(order_tasks(np.full((6, 6), 0.1))) == list(range(6))
    similarity = drawn(8, 0)
    marked = similarity + np.diag(np.full(8, np.nan))
    assert order_tasks(marked, steps=5000) == order_tasks(similarity, steps=5000)


def test_few_tasks_are_worth_what_their_edges_are():
    assert order_tasks(np.empty((0, 0))) == [] and tour_similarity(np.empty((0, 0)), []) == 0
    assert order_tasks(np.ones((1, 1))) == [0] and tour_similarity(np.ones((1, 1)), [0]) == 0
    assert order_tasks(drawn(2, 0)) == [0, 1] and tour_similarity(drawn(2, 0), [1, 0]) == 2 * drawn(2, 0)[0, 1]
    assert order_tasks(drawn(3, 0)) == [0, 1, 2]


def test_float32_cosines_count_as_symmetric():
    similarity = drawn(20, 0, 5).astype(np.float32)
    similarity[0, 1] += 1e-7
    assert sorted(order_tasks(similarity, steps=1000)) == list(range(20))


@pytest.mark.parametrize(
    ("similarity", "message"),
    [
        (np.ones((2, 3)), r"shape \(m, m\)"),
        (np.ones(4), r"shape \(m, m\)"),
        (np.array([[1, np.nan], [np.nan, 1]]), "not finite"),
        (np.triu(np.ones((4, 4))), "not symmetric"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers"),
    ],
)
def test_what_is_no_similarity_is_refused(similarity, message):
    with pytest.raises(InputError, match=message):
        order_tasks(similarity)


def test_wrong_steps_and_orders_are_refused():
    with pytest.raises(InputError, match="steps"):
        order_tasks(drawn(5, 0), steps=-1)
    with pytest.raises(InputError, match="each of the 5"):
        tour_similarity(drawn(5, 0), [0, 1, 2, 3, 3])


def test_annealing_stops_early_when_nothing_moves(monkeypatch):
    ring = np.roll(np.eye(12), 1, axis=1) + np.roll(np.eye(12), -1, axis=1)
    batches = []
    monkeypatch.setattr(tours, "swap_gains", lambda *given: batches.append(1) or swap_gains(*given))
    assert order_tasks(ring, steps=4 * tours.PATIENCE) == list(range(12))
    assert len(batches) == -(-tours.PATIENCE // tours.BATCH)
