import numpy as np
import pytest

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
