import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InputError
from tests.conftest import blobs as narrow_blobs
from tests.conftest import with_answers

SIZES = (40, 30, 20)
TEXTS = [f"text {i}" for i in range(90)]
VECTORS = np.pad(narrow_blobs(SIZES), ((0, 0), (0, 24)))


@pytest.fixture(scope="module")
def model(make_model):
    """A model whose vectors under "Half?" tell even from odd texts, and otherwise are ``VECTORS``."""
    model = InBedder(make_model("bert"))
    halves = np.pad(narrow_blobs((45, 45), seed=1), ((0, 0), (0, 24)))

    def encode(texts, question=None, **_):
        rows = [int(text.split()[1]) for text in texts]
        return halves[[row // 2 + 45 * (row % 2) for row in rows]] if question == "Half?" else VECTORS[rows]

    model.encode = with_answers(model, encode)
    model.answer = lambda texts, question, **_: [f"{question[0]} {int(text.split()[1]) % 2}" for text in texts]
    return model


@pytest.fixture
def result(model):
    return cluster(TEXTS, "What?", model, k=3, namer=lambda groups: ["a", "b", "c"][: len(groups)])


def save(result, model, folder):
    result.save(folder / "saved")
    return Grouping.load(folder / "saved", model)


def test_merged_groups_are_one_with_the_name_of_the_largest(result):
    merged = result.merge([1, 2])
    assert (merged.sizes, merged.names) == ([50, 40], ["b", "a"])
    assert merged.labels.tolist() == [1] * 40 + [0] * 50
    assert np.isnan(merged.stability[0]) and merged.stability[1] == result.stability[0]
    assert result.merge([2, 1, 2], "rest").names == ["rest", "a"]
    assert result.sizes == [40, 30, 20]  # the result itself does not change


def test_moved_texts_join_the_group_and_an_empty_group_is_gone(result):
    edited = result.move(range(40, 60), 0)
    assert (edited.sizes, edited.names) == ([60, 20, 10], ["a", "c", "b"])
    assert result.move(range(70, 90), 0).names == ["a", "b"]


def test_renamed_groups_keep_everything_else(result):
    renamed = result.rename({1: "x"})
    assert renamed.names == ["a", "x", "c"]
    assert renamed.rename({1: "b"}) == result


def test_a_split_group_has_groups_of_the_other_question(result, model):
    split = result.split(0, "Half?", 2, model=model, namer=lambda groups: ["even", "odd"])
    assert split.sizes == [30, 20, 20, 20]
    assert sorted(split.names) == ["a: even", "a: odd", "b", "c"]
    first = [split.names[label] for label in split.labels[:40]]
    assert len(set(zip(first, np.arange(40) % 2, strict=True))) == 2
    assert split.answers[0] == "H 0" and split.answers[50] == "W 0"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda result: result.merge([1]), "at least two groups"),
        (lambda result: result.merge([1, 3]), "group must be a whole number from 0 to 2"),
        (lambda result: result.merge([0, 1], " "), "not a valid name"),
        (lambda result: result.move([90], 0), "row must be a whole number from 0 to 89"),
        (lambda result: result.move([], 0), "no text to move"),
        (lambda result: result.move([0], 3), "to must be"),
        (lambda result: result.rename({0: ""}), "not a valid name"),
        (lambda result: result.rename({0: "b"}), "Two groups would have the name 'b'"),
        (lambda result: result.rename({7: "x"}), "group must be"),
        (lambda result: result.split(3, "Half?"), "group must be"),
    ],
)
def test_edits_of_what_is_not_there_are_refused(result, edit, message):
    with pytest.raises(InputError, match=message):
        edit(result)


def test_texts_that_fit_no_group_cannot_be_merged(model, result):
    from dataclasses import replace

    with pytest.raises(InputError, match="is not a group"):
        replace(result, left_out=2).merge([1, 2])
    assert replace(result, left_out=2).move([80], 0).left_out == 2


def test_a_merged_group_assigns_what_was_near_to_any_of_its_parts(result, model, tmp_path):
    grouping = save(result.merge([0, 2]), model, tmp_path)
    assert len(grouping.centres) == 3 and len(grouping.groups) == 2
    assert grouping.assign(TEXTS).labels.tolist() == [0] * 40 + [1] * 30 + [0] * 20


def test_moved_texts_pull_texts_like_them_along(result, model, tmp_path):
    assert save(result.move(range(70, 90), 0), model, tmp_path).assign(TEXTS).labels.tolist() == [0] * 40 + [1] * 30 + [0] * 20


def test_all_moved_texts_are_in_their_new_group(result, model, tmp_path):
    grouping = save(result, model, tmp_path)
    moved_rows = [*range(0, 40, 2), *range(41, 70, 2), 80]
    grouping.move([TEXTS[row] for row in moved_rows], 2)
    labels = grouping.assign(TEXTS).labels
    assert set(labels[moved_rows].tolist()) == {2}
    assert [group.size for group in grouping.groups] == [20, 15, 55]
    grouping.split(2, "Half?", TEXTS, 2)
    grouping.move([TEXTS[row] for row in moved_rows], 0)
    assert set(grouping.assign(TEXTS).labels[moved_rows].tolist()) == {0}


def test_a_text_that_is_moved_again_leaves_its_former_group(result, model, tmp_path):
    grouping = save(result, model, tmp_path)
    for number in (1, 2, 0, 1):
        grouping.move([TEXTS[80]], number)
        assert grouping.assign([TEXTS[80]]).labels.tolist() == [number]
    assert [group.size for group in grouping.groups] == [40, 31, 19]
    grouping.save(tmp_path / "again")
    assert Grouping.load(tmp_path / "again", model).assign([TEXTS[80]]).labels.tolist() == [1]


def test_new_texts_of_a_split_group_are_asked_its_question(result, model, tmp_path):
    split = result.split(0, "Half?", 2, model=model)
    grouping = save(split, model, tmp_path)
    assignment = grouping.assign(TEXTS)
    assert assignment.labels.tolist() == split.labels.tolist()
    assert assignment.answers == split.answers
    assert [row["question"] == "Half?" for row in assignment.rows()] == (result.labels == 0).tolist()
    assert grouping.split_questions == ["Half?"]


def test_edits_of_edits_are_saved_too(result, model, tmp_path):
    edited = result.split(0, "Half?", 2, model=model).merge([1, 2]).rename({0: "first"}).move([3], 1)
    grouping = save(edited, model, tmp_path)
    assert sorted(grouping.names) == sorted(edited.names)
    labels = grouping.assign(TEXTS).labels
    assert (labels == edited.labels).mean() > 0.95


def test_a_saved_grouping_is_merged_split_and_moved_like_a_result(result, model, tmp_path):
    grouping = save(result, model, tmp_path)
    grouping.merge([2, 0], "both")
    assert grouping.names == ["both", "b"] and [group.size for group in grouping.groups] == [60, 30]
    grouping.split(1, "Half?", TEXTS, 2)
    assert len(grouping.groups) == 3 and all(name.startswith("b: ") for name in grouping.names[1:])
    grouping.move([TEXTS[89]], 1)
    grouping.save(tmp_path / "again")
    labels = Grouping.load(tmp_path / "again", model).assign(TEXTS).labels
    assert set(labels[:40]) == {0} and set(labels[40:70]) == {1, 2} and labels[89] == 1
    assert len({*zip(labels[40:70], np.arange(40, 70) % 2, strict=True)}) == 2


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda grouping: grouping.merge([0]), "at least two groups"),
        (lambda grouping: grouping.merge([0, 1], "c"), "Two groups would have the name 'c'"),
        (lambda grouping: grouping.move(["text 1"], 9), "to must be"),
        (lambda grouping: grouping.move([], 0), "no text to assign"),
        (lambda grouping: grouping.split(0, "Half?", TEXTS[40:]), "0 of the texts are in group 1"),
    ],
)
def test_saved_groups_refuse_the_same(result, model, tmp_path, edit, message):
    grouping = save(result, model, tmp_path)
    with pytest.raises(InputError, match=message):
        edit(grouping)
    assert grouping.names == ["a", "b", "c"]
