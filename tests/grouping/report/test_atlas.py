import numpy as np

from inbedder.grouping.report.atlas import find_neighbours, make_atlas_rows
from inbedder.grouping.report.maps import HEIGHT
from inbedder.grouping.report.views import make_views
from tests.grouping.report.test_page import grouping


def test_the_positions_are_those_of_the_page_with_y_upwards():
    results = [grouping([0] * 6 + [1] * 6), grouping([0, 1] * 6, instruction="Is it good?")]
    rows, options = make_atlas_rows(results, [{"body": text} for text in results[0].texts])
    for view, suffix in zip(make_views(results), (": What is it?", ": Is it good?"), strict=True):
        positions = [(view.marks[mark].x, round(HEIGHT - view.marks[mark].y, 1)) for mark in view.mark_of]
        assert [(row["x" + suffix], row["y" + suffix]) for row in rows] == positions
    assert options[1] == "--text text --x 'x: Is it good?' --y 'y: Is it good?' --neighbors 'neighbors: Is it good?'"


def test_columns_of_the_table_are_kept_and_new_ones_get_a_number():
    result = grouping([0, 0, 1, 1])
    rows, (options,) = make_atlas_rows([result], [{"text": text, "x": "own"} for text in result.texts])
    assert list(rows[0])[:5] == ["text", "x", "x_2", "y", "neighbors"] and rows[0]["x"] == "own"
    assert options == "--text text --x x_2 --y y --neighbors neighbors"
    other_rows, (other_options,) = make_atlas_rows([result], [{"text": "a title"}] * 4)
    assert other_rows[3]["text"] == "a title" and other_rows[3]["text_2"] == "text 3"
    assert other_options.startswith("--text text_2 ")


def test_neighbours_are_the_nearest_by_cosine_and_the_text_itself_first():
    vectors = np.float32([[1, 0], [0, 3], [2, 0.2], [1, 0]])
    first = find_neighbours(vectors)[3]
    assert first["ids"] == [3, 0, 2, 1] and first["distances"] == [0, 0, 0.005, 1]
    assert find_neighbours(np.ones((1, 2), np.float32)) == [{"ids": [0], "distances": [0.0]}]
    assert {len(each["ids"]) for each in find_neighbours(np.random.default_rng(0).normal(size=(40, 5)))} == {15}
