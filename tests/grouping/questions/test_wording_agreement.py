import numpy as np
import pytest

from inbedder import InBedder, compare_wordings
from inbedder.errors import InputError
from tests.grouping.test_clustering import blobs

TEXTS = [f"text number {i}" for i in range(30)]
FIRST, SWAPPED, ODD = "What kind?", "Which kind?", "How loud?"


@pytest.fixture
def model(make_model, monkeypatch):
    """Make a model with two wordings that differ in two rows, which swap the order of the groups, and one unrelated wording."""
    model = InBedder(make_model("bert"))
    vectors = np.pad(blobs((16, 14)), ((0, 0), (0, 24)))  # as long as the model's
    by_wording = {FIRST: vectors, SWAPPED: vectors[[28, 29, *range(2, 30)]], ODD: vectors[np.arange(30) * 7 % 30]}
    monkeypatch.setattr(model, "encode_many", lambda _texts, wordings, **_: np.stack([by_wording[one] for one in wordings]))
    return model


def test_agreement_is_the_adjusted_rand_index_and_best_agrees_most(model):
    comparison = compare_wordings(TEXTS, [ODD, FIRST, SWAPPED], model, k=2)
    assert comparison.agreement.shape == (3, 3)
    assert np.array_equal(comparison.agreement, comparison.agreement.T)
    assert np.diag(comparison.agreement) == pytest.approx([1, 1, 1])
    assert comparison.agreement[1, 2] > 0.5 > abs(comparison.agreement[0, 1])
    assert comparison.mean_agreement == pytest.approx(
        [comparison.agreement[i, [j for j in range(3) if j != i]].mean() for i in range(3)]
    )
    assert comparison.best == int(comparison.mean_agreement.argmax()) != 0
    assert comparison.result.instruction == comparison.wordings[comparison.best]


def test_rows_move_only_if_their_group_changes(model):
    comparison = compare_wordings(TEXTS, [FIRST, SWAPPED], model, k=2)
    assert comparison.best == 0
    assert np.array_equal(comparison.labels[0], comparison.result.labels)
    assert comparison.moves.tolist() == [1, 1] + [0] * 28
    assert comparison.labels.sum(axis=1).tolist() == [14, 16]


def test_a_row_of_the_table_names_the_group_under_each_wording(model):
    comparison = compare_wordings(TEXTS, [FIRST, SWAPPED], model, k=2)
    rows = comparison.rows()
    assert list(rows[0]) == ["row", "text", "moves", FIRST, SWAPPED]
    assert rows[0]["moves"] == 1 and rows[0][FIRST] != rows[0][SWAPPED]
    assert rows[5]["moves"] == 0 and rows[5][FIRST] == rows[5][SWAPPED]
    assert {row[FIRST] for row in rows} == set(comparison.result.names)
    assert [row["row"] for row in comparison.rows(range(100, 130))] == list(range(100, 130))


def test_auto_takes_one_number_of_groups_for_all_wordings(model):
    comparison = compare_wordings(TEXTS, [FIRST, SWAPPED], model)
    assert len({int(labels.max()) for labels in comparison.labels}) == 1


def test_equal_groupings_agree_fully_and_nothing_moves(make_model):
    model = InBedder(make_model("opt"))
    comparison = compare_wordings(TEXTS, ["What is it?", "What  is it?"], model, k=1)
    assert comparison.agreement.tolist() == [[1, 1], [1, 1]]
    assert not comparison.moves.any()


@pytest.mark.parametrize(
    ("texts", "wordings", "message"),
    [
        (TEXTS, [FIRST], r"The question has 1 wordings\. Give at least 2"),
        (TEXTS, [FIRST, FIRST], "occurs twice"),
        (TEXTS, "What?", "wordings must be a list"),
        (["only"], [FIRST, ODD], r"1 texts cannot be compared\. Give at least two"),
    ],
)
def test_an_invalid_comparison_is_refused(model, texts, wordings, message):
    with pytest.raises(InputError, match=message):
        compare_wordings(texts, wordings, model)
