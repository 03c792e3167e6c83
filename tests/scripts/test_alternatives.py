"""Scores, names and marks of the comparison with BERTopic and k-means."""

import json
from dataclasses import replace

import numpy as np
import pytest

from inbedder import InBedder
from scripts.bench.grouping import alternatives
from scripts.bench.grouping.alternatives import AskedTable, TimedGroups

QUESTION = "What is the complaint about?"
PROBLEMS = ("the battery died", "the parcel came late", "nobody answered me")


@pytest.fixture
def table():
    texts = [f"{problem} on day {number}" for number in range(20) for problem in PROBLEMS]
    labels = [problem for _ in range(20) for problem in PROBLEMS]
    other_labels = ["early" if number < 10 else "late" for number in range(20) for _ in PROBLEMS]
    return AskedTable("complaints", "problem", QUESTION, texts, labels, other_labels, [])


def encode_problem(texts):
    noise = np.random.default_rng(0).normal(scale=0.01, size=(len(texts), 3))
    return np.eye(3)[[[problem in text for problem in PROBLEMS].index(True) for text in texts]] + noise


def test_groups_of_the_criterion_score_full_and_leak_nothing(table):
    numbers = [PROBLEMS.index(label) for label in table.labels]
    scores = alternatives.score_groups(table, TimedGroups([numbers, [2 - number for number in numbers]], {}, 1.23))
    assert scores == {"v_measure": 100.0, "other_v_measure": 0.0, "groups": 3, "outside": 0.0, "seconds": 1.2}


def test_groups_of_the_other_criterion_leak(table):
    scores = alternatives.score_groups(table, TimedGroups([[int(label == "late") for label in table.other_labels]], {}, 0))
    assert (scores["v_measure"], scores["other_v_measure"]) == (0.0, 100.0)


def test_texts_outside_count_as_one_group_and_are_counted(table):
    groups = TimedGroups([[-1 if label == PROBLEMS[2] else PROBLEMS.index(label) for label in table.labels]], {}, 0)
    scores = alternatives.score_groups(table, groups)
    assert (scores["v_measure"], scores["groups"], scores["outside"]) == (100.0, 2, 33.3)


def test_the_sheet_shows_texts_of_the_named_group_and_no_comma(table):
    groups = TimedGroups([[PROBLEMS.index(label) for label in table.labels]], {0: "dead, battery", 1: "late", 2: "silence"}, 0)
    rows = alternatives.sample_names(table, groups)
    assert [row["name"] for row in rows] == ["dead battery", "late", "silence"]
    for row, problem in zip(rows, PROBLEMS, strict=True):
        assert len(row["texts"]) == 5 and all(problem in text for text in row["texts"])


def test_marks_are_joined_with_the_methods_in_the_order_of_the_sheet():
    names = [{"name": "a", "method": "mini"}, {"name": "b", "method": "BERTopic"}, {"name": "c", "method": "mini"}]
    content = alternatives.add_marks({"methods": {"mini": {"groups": 3}, "BERTopic": {}, "small": {}}, "names": names}, [2, 0, 1])
    assert content["methods"] == {
        "mini": {"groups": 3, "mean_mark": 1.5, "names": 2},
        "BERTopic": {"mean_mark": 0, "names": 1},
        "small": {},
    }
    with pytest.raises(ValueError, match="shorter"):
        alternatives.add_marks(content, [2, 0])


def test_measure_writes_means_by_method_and_a_sheet_without_them(table, tmp_path, monkeypatch):
    swapped = replace(table, labels=table.other_labels, other_labels=table.labels, criterion="time")
    monkeypatch.setattr(alternatives, "load_tables", lambda _: [table, swapped])
    groups = TimedGroups([[PROBLEMS.index(label) for label in table.labels]], dict(enumerate(PROBLEMS)), 3.0)
    monkeypatch.setattr(alternatives, "list_methods", lambda: {"BERTopic": lambda _: groups, "mini": lambda _: groups})
    sheet, output = tmp_path / "sheet.jsonl", tmp_path / "results.json"
    alternatives.measure(tmp_path, sheet, {"command": "measure"}, output)
    content = json.loads(output.read_text())
    assert content["methods"]["mini"] == {
        "v_measure": 50.0,
        "other_v_measure": 50.0,
        "groups": 3,
        "outside": 0.0,
        "seconds": 3.0,
    }
    rows = [json.loads(line) for line in sheet.read_text().splitlines()]
    assert [row["name"] for row in rows] == [row["name"] for row in content["names"]]
    assert len(rows) == 12 and all(row["mark"] is None and "method" not in row for row in rows)


def test_seconds_are_those_of_the_first_question_of_each_table():
    scores = {"method": "mini", "v_measure": 1, "other_v_measure": 2, "groups": 3, "outside": 0}
    timed = (("a", 10.0), ("a", 1.0), ("b", 20.0), ("b", 2.0))
    results = [{**scores, "table": name, "seconds": seconds} for name, seconds in timed]
    assert alternatives.summarize(results)["mini"]["seconds"] == 15.0


def test_cluster_makes_as_many_groups_as_labels(table, make_model):
    groups = alternatives.group_by_answers(table, InBedder(make_model("bert")))
    assert len(groups.labels) == alternatives.SEEDS
    assert all(len(labels) == len(table.texts) for labels in groups.labels)
    assert sorted(groups.names) == sorted(set(groups.labels[0])) == [0, 1, 2]


def test_k_means_over_vectors_is_named_by_the_words_of_the_groups(table):
    pytest.importorskip("bertopic")
    groups = alternatives.group_by_topics(table, encode_problem, k=3)
    assert alternatives.score_groups(table, groups)["v_measure"] == 100
    assert {"battery" in name for name in groups.names.values()} == {True, False}


def test_bertopic_fitted_on_more_texts_labels_those_of_the_table(table):
    pytest.importorskip("bertopic")
    more = replace(table, further_texts=[f"{text}, again" for text in table.texts])
    groups = alternatives.group_by_topics(more, encode_problem, topics=2, with_further_texts=True)
    assert [len(labels) for labels in groups.labels] == [len(table.texts)] * alternatives.SEEDS
    assert all(len(set(labels) - {-1}) == 2 for labels in groups.labels)
