import numpy as np
import pytest

import inbedder
from inbedder import InBedder, compare_wordings
from inbedder.errors import InputError
from tests.grouping.test_clustering import blobs

TEXTS = [f"text number {i}" for i in range(30)]
SAME, SWAPPED, ODD = "What kind?", "Which kind?", "How loud?"


@pytest.fixture
def model(make_model, monkeypatch):
    """Two wordings that group alike but for two rows, which make the smaller group the larger one, and one that does not."""
    model = InBedder(make_model("bert"))
    vectors = np.pad(blobs((16, 14)), ((0, 0), (0, 24)))  # as long as the model's
    by_wording = {SAME: vectors, SWAPPED: vectors[[28, 29, *range(2, 30)]], ODD: vectors[np.arange(30) * 7 % 30]}
    monkeypatch.setattr(model, "encode_many", lambda _texts, wordings, **_: np.stack([by_wording[one] for one in wordings]))
    return model


def test_agreement_is_the_adjusted_rand_index_and_the_best_wording_agrees_most_with_the_others(model):
    found = compare_wordings(TEXTS, [ODD, SAME, SWAPPED], model, k=2)
    assert found.agreement.shape == (3, 3)
    assert np.array_equal(found.agreement, found.agreement.T)
    assert np.diag(found.agreement) == pytest.approx([1, 1, 1])
    assert found.agreement[1, 2] > 0.5 > abs(found.agreement[0, 1])
    assert found.mean_agreement == pytest.approx([found.agreement[i, [j for j in range(3) if j != i]].mean() for i in range(3)])
    assert found.best == int(found.mean_agreement.argmax()) != 0
    assert found.result.instruction == found.wordings[found.best]


def test_rows_move_only_where_their_group_changes_whatever_its_number(model):
    found = compare_wordings(TEXTS, [SAME, SWAPPED], model, k=2)
    assert found.best == 0
    assert np.array_equal(found.labels[0], found.result.labels)
    assert found.moves.tolist() == [1, 1] + [0] * 28
    assert found.labels.sum(axis=1).tolist() == [14, 16]


def test_a_row_of_the_table_names_the_group_under_each_wording(model):
    found = compare_wordings(TEXTS, [SAME, SWAPPED], model, k=2)
    rows = found.rows()
    assert list(rows[0]) == ["row", "text", "moves", SAME, SWAPPED]
    assert rows[0]["moves"] == 1 and rows[0][SAME] != rows[0][SWAPPED]
    assert rows[5]["moves"] == 0 and rows[5][SAME] == rows[5][SWAPPED]
    assert {row[SAME] for row in rows} == set(found.result.names)
    assert [row["row"] for row in found.rows(range(100, 130))] == list(range(100, 130))


def test_auto_takes_one_number_of_groups_for_all_wordings(model):
    found = compare_wordings(TEXTS, [SAME, SWAPPED], model)
    assert len({int(labels.max()) for labels in found.labels}) == 1


def test_groupings_that_are_the_same_agree_wholly_and_nothing_moves(make_model):
    model = InBedder(make_model("opt"))
    found = compare_wordings(TEXTS, ["What is it?", "What  is it?"], model, k=1)
    assert found.agreement.tolist() == [[1, 1], [1, 1]]
    assert not found.moves.any()


@pytest.mark.parametrize(
    ("texts", "wordings", "told"),
    [
        (TEXTS, [SAME], "1 wordings of the question: give at least 2"),
        (TEXTS, [SAME, SAME], "is given twice"),
        (TEXTS, "What?", "wordings must be a list"),
        (["only"], [SAME, ODD], "1 texts: give at least two"),
    ],
)
def test_a_comparison_without_a_meaning_is_refused(model, texts, wordings, told):
    with pytest.raises(InputError, match=told):
        compare_wordings(texts, wordings, model)


def test_the_comparison_is_a_public_name():
    assert "compare_wordings" in inbedder.__all__
