import csv
import re
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from inbedder import InBedder
from inbedder_evaluation.metrics import spearman
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER

SPLITS = {
    "csts.csv": {"train": 1440, "validation": 101, "test": 139},
    "csts-captions.csv": {"train": 1000, "validation": 220, "test": 320},
}


@pytest.fixture(scope="module", params=SPLITS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def rows(name):
    with (WRITTEN_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def pairs(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[int(row["pair"])].append(row)
    return groups


def split_words(sentence):
    return frozenset(re.findall(r"\w+", sentence.lower()))


def test_the_columns_are_those_of_the_readme(rows):
    assert all(list(row) == ["pair", "split", "sentence1", "sentence2", "condition", "label"] for row in rows)
    assert all(value and value == value.strip() for row in rows for value in row.values())


def test_each_pair_has_two_conditions_and_the_first_is_rated_higher(pairs, name):
    assert list(pairs) == list(range(1, sum(SPLITS[name].values()) + 1))
    for high, low in pairs.values():
        assert (high["sentence1"], high["sentence2"]) == (low["sentence1"], low["sentence2"])
        assert high["condition"] != low["condition"]
        assert int(high["label"]) > int(low["label"])


def test_all_ratings_from_one_to_five_are_used(rows):
    assert {row["label"] for row in rows} == set("12345")


def test_splits_are_by_pair_and_of_the_stated_sizes(pairs, name):
    assert all(len({row["split"] for row in two}) == 1 for two in pairs.values())
    assert Counter(two[0]["split"] for two in pairs.values()) == SPLITS[name]


def test_no_two_sentences_are_equal_or_nearly_equal(pairs):
    sentences = [two[0][column] for two in pairs.values() for column in ("sentence1", "sentence2")]
    assert len({sentence.lower() for sentence in sentences}) == len(sentences)
    word_counts = CountVectorizer(binary=True, token_pattern=r"\w+").fit_transform(sentences).astype(np.int32)
    shared = (word_counts @ word_counts.T).tocoo()
    sizes = word_counts.sum(1).A1
    jaccard = shared.data / (sizes[shared.row] + sizes[shared.col] - shared.data)
    assert not [
        (sentences[i], sentences[j]) for i, j in zip(shared.row[jaccard > 0.5], shared.col[jaccard > 0.5], strict=True) if i < j
    ]


def test_no_row_is_repeated(rows):
    assert len({(row["sentence1"], row["sentence2"], row["condition"]) for row in rows}) == len(rows)


def test_sentences_have_6_to_25_words_and_conditions_are_short_phrases(rows):
    assert all(6 <= len(row[column].split()) <= 25 for row in rows for column in ("sentence1", "sentence2"))
    assert all(len(row["condition"].split()) <= 12 and row["condition"].endswith(".") for row in rows)


def test_words_of_a_condition_do_not_predict_the_rating(rows):
    ratings = defaultdict(list)
    for row in rows:
        for word in split_words(row["condition"]):
            ratings[word].append(int(row["label"]))
    means = {word: sum(values) / len(values) for word, values in ratings.items() if len(values) >= 16}
    assert len(means) > 15
    assert all(2 < mean < 4 for mean in means.values()), means


def test_conditions_do_not_predict_the_ratings_of_test(rows):
    vectors = InBedder("all-MiniLM-L6-v2").encode([row["condition"] for row in rows]).astype(np.float64)
    labels = np.array([float(row["label"]) for row in rows])
    train, test = (np.array([row["split"] == split for row in rows]) for split in ("train", "test"))
    centred = vectors - vectors[train].mean(0)
    for penalty in (0.01, 0.1, 1.0, 10.0):
        gram = centred[train].T @ centred[train] + penalty * np.eye(centred.shape[1])
        weights = np.linalg.solve(gram, centred[train].T @ (labels[train] - labels[train].mean()))
        assert abs(spearman(centred[test] @ weights, labels[test].tolist())) < 15


def test_a_second_rating_of_test_captions_is_never_far_from_the_first():
    first, second = (pd.read_csv(WRITTEN_FOLDER / f"csts-captions{suffix}.csv") for suffix in ("", "-second"))
    both = second.merge(first[first["split"] == "test"], on=["pair", "condition"], suffixes=("_second", ""))
    differences = (both["label"] - both["label_second"]).abs()
    assert len(both) == len(second) == 480 and differences.max() == 1


def test_the_two_conditions_of_a_topic_swap_their_ratings():
    with (WRITTEN_FOLDER / "csts-captions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for first in range(0, len(rows), 4):
        high, low, second_high, second_low = rows[first : first + 4]
        assert (high["condition"], low["condition"]) == (second_low["condition"], second_high["condition"])
        assert len({row["split"] for row in rows[first : first + 4]}) == 1
