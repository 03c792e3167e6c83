import numpy as np
import pytest
from scipy.spatial.distance import pdist

from inbedder.grouping.report import maps
from inbedder.grouping.report.maps import project


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 40])
@pytest.mark.parametrize("width", [1, 2, 8])
def test_small_corpora_and_short_vectors_have_a_map(count: int, width: int) -> None:
    points, _ = project(np.random.default_rng(count).normal(size=(count, width)).astype(np.float32))
    assert points.shape == (count, 2)
    assert np.isfinite(points).all()


@pytest.mark.parametrize(("count", "method"), [(9, "PCA"), (60, "t-SNE"), (3001, "PCA")])
def test_the_map_keeps_far_clusters_apart(count: int, method: str) -> None:
    labels = np.arange(count) % 2
    points, used_method = project(
        (np.eye(2, 5)[labels] + np.random.default_rng(0).normal(scale=0.05, size=(count, 5))).astype(np.float32)
    )
    assert used_method == method
    centres = np.stack([points[labels == i].mean(axis=0) for i in (0, 1)])
    assert (np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1) == labels).all()
    assert np.ptp(points, axis=0)[0] >= np.ptp(points, axis=0)[1]


def test_squares_show_the_shares_of_groups_and_the_density_of_texts() -> None:
    positions = np.array([[12.0, 15.0]] * 4 + [[305.0, 205.0]])
    marks, mark_of = maps.draw_density(positions, np.array([1, 1, 1, 0, 0]))
    assert [(mark.x, mark.y, mark.group, mark.texts) for mark in marks] == [(15, 15, 1, 3), (15, 15, 0, 1), (305, 205, 0, 1)]
    assert mark_of.tolist() == [0, 0, 0, 1, 2]
    areas = [(2 * mark.size / maps.CELL) ** 2 for mark in marks]
    assert areas == pytest.approx([0.75, 0.25, 1], abs=0.01)
    assert marks[0].opacity == marks[1].opacity == 1 > marks[2].opacity


def test_a_million_marks_are_never_drawn() -> None:
    rng = np.random.default_rng(0)
    marks, mark_of = maps.draw_density(rng.random((100_000, 2)) * [maps.WIDTH, maps.HEIGHT], np.zeros(100_000, dtype=np.int64))
    assert len(marks) <= maps.WIDTH * maps.HEIGHT / maps.CELL**2 and len(mark_of) == 100_000


@pytest.mark.parametrize("turn", [np.diag([1.0, -1.0]), np.array([[0.6, 0.8], [-0.8, 0.6]]), np.array([[0.0, 1.0], [1.0, 0.0]])])
def test_a_turned_or_mirrored_map_is_turned_back(turn: np.ndarray) -> None:
    points = np.random.default_rng(0).normal(size=(40, 2)) * [3, 1]
    points -= points.mean(axis=0)
    assert maps.align(points @ turn, points) == pytest.approx(points)


@pytest.mark.parametrize("count", [9, 60])
def test_maps_of_several_questions_are_turned_to_the_first(count: int) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, 6)).astype(np.float32)
    other_vectors = vectors[:, ::-1] * [-1, 1, 1, -1, 1, 1] + rng.normal(scale=0.3, size=(count, 6))
    own_points = project(other_vectors.astype(np.float32))[0]
    (first, _), (second, method), (equal, _) = maps.project_all(
        [vectors, other_vectors.astype(np.float32), np.ones_like(vectors)]
    )
    assert pdist(second) == pytest.approx(pdist(own_points)) and method == project(vectors)[1]
    assert np.linalg.norm(second - first) < min(
        np.linalg.norm(own_points * signs - first) for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1])
    )
    assert equal.tolist() == [[0, 0]] * count


def test_the_map_of_mirrored_vectors_equals_the_first() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32) * [4, 2, 1, 1]
    (first, _), (second, _) = maps.project_all([vectors, vectors * [-1, 1, 1, 1]])
    assert second == pytest.approx(first, abs=1e-5)
