import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbedder.errors import InputError
from inbedder_finetune.curriculum.annealing import anneal
from inbedder_finetune.curriculum.task_tours import build_greedy_tour, measure_tour, order_tasks, run_two_opt
from scripts.reproduce.compare_tours import compute_upper_bound, find_optimal_value, sample_similarity

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("tasks", [6, 9])
def test_few_tasks_get_the_best_of_all_tours(tasks, width):
    for seed in range(10):
        similarity = sample_similarity(tasks, seed, width)
        assert measure_tour(similarity, order_tasks(similarity, seed=seed)) == pytest.approx(
            find_optimal_value(similarity), abs=1e-9
        ), seed


def test_annealing_is_close_to_the_best_of_all_tours():
    for seed in range(10):
        similarity = sample_similarity(6, seed)
        value = measure_tour(similarity, order_tasks(similarity, method="annealing", steps=50_000, seed=seed))
        assert 0.97 * find_optimal_value(similarity) < value < find_optimal_value(similarity) + 1e-9, seed


@pytest.mark.parametrize("width", [0, 3])
def test_the_upper_bound_is_close_to_the_best_tour(width):
    for seed in range(8):
        similarity = sample_similarity(7, seed, width)
        best, bound = find_optimal_value(similarity), compute_upper_bound(similarity, rounds=200)
        assert best <= bound + 1e-9
        assert bound < best + 0.35, seed


def test_committed_tours_keep_their_distance_to_the_optimum():
    results = json.loads((ROOT / "finetune" / "results" / "tours.json").read_text(encoding="utf-8"))
    shares = {way: [cell["methods"][way]["share_of_bound"] for cell in results["many_tasks"]] for way in ("2-opt", "annealing")}
    assert all(share <= 1 for column in shares.values() for share in column)
    best = [few["share_of_best"] for few in results["nine_tasks"]]
    assert all(few["annealing"] <= few["2-opt"] <= 1 for few in best)
    losses = {way: 100 * (1 - min(column)) for way, column in shares.items()}
    readme = (ROOT / "finetune" / "README.md").read_text(encoding="utf-8")
    assert f"{losses['2-opt']:.1f}% below an upper bound, annealed ones up to {losses['annealing']:.1f}%" in readme


@pytest.mark.parametrize("width", [0, 64])
def test_two_opt_beats_its_greedy_start_and_annealing(width):
    similarity = sample_similarity(120, 1, width)
    opted, annealed = (order_tasks(similarity, method=method, steps=100_000) for method in ("2-opt", "annealing"))
    value = measure_tour(similarity, opted)
    assert value > measure_tour(similarity, build_greedy_tour(similarity))
    assert value > measure_tour(similarity, annealed)


@given(st.integers(0, 25), st.integers(0, 10**6), st.sampled_from(["2-opt", "annealing"]))
@settings(max_examples=40)
def test_the_order_holds_every_task_once_and_depends_on_the_seed(tasks, seed, method):
    similarity = sample_similarity(tasks, seed, 3)
    order = order_tasks(similarity, method=method, steps=500, seed=seed)
    assert sorted(order) == list(range(tasks))
    assert order == order_tasks(similarity, method=method, steps=500, seed=seed)


def test_annealing_improves_with_more_steps():
    similarity = sample_similarity(40, 0)
    short, long = (measure_tour(similarity, anneal(similarity, steps)) for steps in (0, 200_000))
    assert long > short + 5


@given(st.integers(2, 12), st.integers(0, 10**6), st.integers(0, 11))
@settings(max_examples=40)
def test_rotated_reversed_and_renumbered_tours_have_equal_values(tasks, seed, turn):
    similarity, order = sample_similarity(tasks, seed), list(np.random.default_rng(seed).permutation(tasks))
    value = measure_tour(similarity, order)
    turned = order[turn % tasks :] + order[: turn % tasks]
    assert measure_tour(similarity, turned) == measure_tour(similarity, order[::-1]) == value
    names = np.random.default_rng(seed + 1).permutation(tasks)
    assert measure_tour(similarity[np.ix_(names, names)], np.argsort(names)[order]) == value


def test_the_order_starts_at_task_0_and_depends_on_the_seed():
    similarity = sample_similarity(40, 0, 8)
    one = order_tasks(similarity, seed=1)
    assert one == order_tasks(similarity, seed=1)
    assert one[0] == 0 and one[1] < one[-1]


def test_two_opt_removes_a_crossing():
    angles = np.arange(8) * np.pi / 4
    similarity = np.cos(angles[:, None] - angles)
    assert run_two_opt(similarity, [0, 1, 5, 4, 3, 2, 6, 7]) == list(range(8))
    assert build_greedy_tour(similarity)[:2] in ([0, 1], [0, 7])


def test_equal_similarities_are_ordered_and_the_diagonal_is_ignored():
    assert sorted(order_tasks(np.full((6, 6), 0.1))) == list(range(6))
    similarity = sample_similarity(8, 0)
    marked = similarity + np.diag(np.full(8, np.nan))
    assert order_tasks(marked) == order_tasks(similarity)


def test_tours_of_few_tasks_have_the_value_of_their_edges():
    assert order_tasks(np.empty((0, 0))) == [] and measure_tour(np.empty((0, 0)), []) == 0
    assert order_tasks(np.ones((1, 1))) == [0] and measure_tour(np.ones((1, 1)), [0]) == 0
    assert (
        order_tasks(sample_similarity(2, 0)) == [0, 1]
        and measure_tour(sample_similarity(2, 0), [1, 0]) == 2 * sample_similarity(2, 0)[0, 1]
    )
    assert order_tasks(sample_similarity(3, 0)) == [0, 1, 2]


def test_float32_cosines_count_as_symmetric():
    similarity = sample_similarity(20, 0, 5).astype(np.float32)
    similarity[0, 1] += 1e-7
    assert sorted(order_tasks(similarity)) == list(range(20))


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
def test_an_invalid_similarity_is_refused(similarity, message):
    with pytest.raises(InputError, match=message):
        order_tasks(similarity)


def test_wrong_methods_steps_and_orders_are_refused():
    with pytest.raises(InputError, match="steps"):
        order_tasks(sample_similarity(5, 0), steps=-1)
    with pytest.raises(InputError, match="Choose 2-opt or annealing"):
        order_tasks(sample_similarity(5, 0), method="exact")
    with pytest.raises(InputError, match="each of the 5"):
        measure_tour(sample_similarity(5, 0), [0, 1, 2, 3, 3])
