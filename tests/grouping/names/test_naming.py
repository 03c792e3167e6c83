from dataclasses import replace

import numpy as np
import pytest

import inbedder.grouping.names.naming as naming
from inbedder import InBedder, cluster
from inbedder.errors import InputError
from inbedder.grouping.describe.explain import find_keywords
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.grouped_texts import deduplicate_group_names
from inbedder.grouping.names.group_contents import GroupContents
from inbedder.grouping.names.namers import NAMERS
from inbedder.grouping.names.naming import (
    collect_contents,
    deduplicate_names,
    find_namer,
    get_namer_name,
    name_groups,
)

ANSWERS = ["late delivery", "late delivery", "slow delivery", "rude staff", "rude waiter", "rude staff"]
LABELS = np.array([0, 0, 0, 1, 1, 1])
VECTORS = np.array([[1, 0], [1, 0], [0.6, 0.8], [0, 1], [0, -1], [0, 1]], dtype=np.float32)


def groups_of(answers=ANSWERS, labels=LABELS, vectors=VECTORS):
    return collect_contents([f"text {i}" for i in range(len(labels))], answers, vectors, labels, find_keywords(answers, labels))


def group_saying(*answers, words=()):
    return GroupContents([f"text {i}" for i in range(len(answers))], list(answers), np.eye(len(answers), dtype=np.float32), words)


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_a_namer_sees_texts_answers_vectors_and_keywords_of_each_group():
    first, second = groups_of()
    assert first.texts == ["text 0", "text 1", "text 2"]
    assert first.answers == ANSWERS[:3]
    assert np.array_equal(first.vectors, VECTORS[:3])
    assert second.keywords[0] == "rude"


def test_a_large_group_is_named_by_its_answered_texts_and_some_others(monkeypatch):
    monkeypatch.setattr(naming, "MAX_ROWS", 4)
    texts, vectors, labels = [str(number) for number in range(10)], np.ones((10, 2), np.float32), np.zeros(10, int)
    (contents,) = collect_contents(texts, ["", "a", "", "", "b", "", "", "c", "", "d"], vectors, labels, [[]])
    assert contents.texts == ["1", "4", "7", "9"]
    (contents,) = collect_contents(texts, ["", "a", "", "", "b", *[""] * 5], vectors, labels, [[]])
    assert contents.texts == ["0", "1", "4", "9"]
    assert contents.answers == ["", "a", "b", ""]


@pytest.mark.parametrize(
    ("namer", "names"),
    [
        ("words", ["delivery, late, slow", "rude, staff, waiter"]),
        ("phrases", ["late delivery", "rude staff"]),
        ("central", ["late delivery", "rude staff"]),
        (lambda groups: [group.answers[-1].upper() for group in groups], ["SLOW DELIVERY", "RUDE STAFF"]),
    ],
    ids=["words", "phrases", "central", "callable"],
)
def test_each_namer_names_in_its_own_way(namer, names):
    assert name_groups(find_namer(namer), groups_of()) == names


def test_the_central_answer_is_closest_to_the_mean_and_cut_if_long():
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    group = GroupContents(["a", "b", "c"], ["east", "middle", "north"], vectors, [])
    namer = find_namer("central")
    assert namer([group]) == ["middle"]
    assert namer([GroupContents(["x" * 99], ["", ""][:1], vectors[:1], [])]) == ["x" * 59 + "…"]


@pytest.mark.parametrize("namer", ["", "loud", "model:", "words:x", "modell", None, ["words"]])
def test_an_unknown_namer_is_refused(namer):
    with pytest.raises(InputError, match=rf"Unknown namer .* Choose one of: {', '.join(NAMERS)}, or"):
        find_namer(namer)


@pytest.mark.parametrize("raw_names", [["only one"], "ab", ["a", None], ["a", "b", "c"]])
def test_a_namer_that_does_not_return_one_string_per_group_is_refused(raw_names):
    with pytest.raises(InputError, match="a list of 2 names, one string per group"):
        name_groups(lambda _groups: raw_names, groups_of())


def test_an_empty_name_becomes_the_keywords_and_without_any_a_number():
    groups = [*groups_of(), group_saying("", "")]
    assert name_groups(lambda _groups: ["", " \n ", ""], groups) == ["delivery, late, slow", "rude, staff, waiter", "group 3"]


def test_no_group_is_called_none():
    groups = [*groups_of(), group_saying("none", words=["none"])]
    assert name_groups(lambda _groups: ["None.", "none of it", "none"], groups) == [
        "delivery, late, slow",
        "none of it",
        "group 3",
    ]


def test_no_name_occurs_twice_in_any_case():
    words = [["refund"], ["refund", "late"], ["refund", "late"], []]
    assert deduplicate_names(["refund", "Refund", "refund", "refund"], words) == [
        "refund",
        "Refund, late",
        "refund 2",
        "refund 3",
    ]
    assert deduplicate_names(["a", "a 2", "a"], [[], [], []]) == ["a", "a 2", "a 3"]
    assert deduplicate_names(["a", "b"], [["x"], ["y"]], used_names=["A"]) == ["a, x", "b"]
    assert deduplicate_names(["Book"], [["books", "author"]], used_names=["book"]) == ["Book, author"]


def test_a_group_is_mixed_if_few_of_its_answers_contain_its_keywords():
    words = ["late", "slow", "cold", "never looked at"]
    assert not is_mixed(group_saying("late bus", "SLOW", "red", "blue", words=words))
    assert is_mixed(group_saying("late bus", "later", "red", "blue", "never", words=words))
    assert not is_mixed(group_saying("red bus", "red", "late", "blue red", "red never", words=words))  # they say red
    assert not is_mixed(group_saying("late", "", "", "", words=words))  # texts that were not asked
    assert not is_mixed(group_saying("", "", words=words))


def test_the_most_common_word_comes_before_rare_keywords():
    namer = find_namer("words")
    rare = group_saying("food late", "food", "food", "good food", "slow", words=["late", "slow", "cold"])
    assert rare.common_words == ["food"]
    assert namer([rare]) == ["food, late, slow"]
    assert namer([replace(rare, keywords=["late", "slow", "food"])]) == ["late, slow, food"]
    assert namer([replace(rare, keywords=[])]) == ["food"]
    assert namer([group_saying("red", "blue", "green", words=["red"])]) == ["red"]
    assert namer([group_saying("", "", words=["text"])]) == ["text"]


def test_names_of_cluster_come_from_its_namer_and_keywords_stay(model):
    texts = [f"text number {i}" for i in range(12)]
    plain = cluster(texts, "What?", model, k=3)
    assert len({name.casefold() for name in plain.names}) == 3
    renamed = cluster(texts, "What?", model, k=3, namer=lambda groups: ["same"] * len(groups))
    assert all(name.startswith("same") for name in renamed.names)
    assert len(set(renamed.names)) == 3
    assert renamed.keywords == plain.keywords
    assert replace(renamed, titles=plain.titles) == plain


def test_a_namer_is_looked_up_before_the_model_runs(model, monkeypatch):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match="Unknown namer 'loud'"):
        cluster(["a", "b"], "What?", model, k=2, namer="loud")


def test_groupings_side_by_side_share_no_name_and_else_stay_the_same(model):
    texts = [f"text number {i}" for i in range(12)]
    one = cluster(texts, "What?", model, k=2, namer=lambda _: ["staff", "food"])
    other_result = cluster(texts, "Why?", model, k=2, namer=lambda _: ["food", "price"])
    first, second, third = deduplicate_group_names([one, other_result, one])
    assert first is one
    names = [name for result in (first, second, third) for name in result.names]
    assert len({name.casefold() for name in names}) == 6
    assert second.keywords == other_result.keywords
    assert [
        result is unchanged
        for result, unchanged in zip((first, second, third), deduplicate_group_names([first, second, third]), strict=True)
    ]


def test_the_saved_name_of_a_namer_finds_it_again():
    for name in NAMERS:
        assert get_namer_name(find_namer(name)) == name
    assert get_namer_name(lambda groups: [""] * len(groups)) == "phrases"
