import numpy as np
import pandas
import pytest

from inbedder import InBedder, classify
from inbedder.classification.category_groups import make_category_groups
from inbedder.classification.category_result import LabelledRows
from inbedder.classification.classifier import add_examples
from inbedder.errors import InputError
from inbedder.grouping.report.page import save_report
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import TEXTS

QUESTION = "What?"
NAMES = ["cats", "late parcels", "weather"]


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_a_text_is_in_the_category_with_the_nearest_vector(model):
    result = classify(TEXTS, QUESTION, NAMES, model=model)
    scores = InBedder.similarity(model.encode(TEXTS, QUESTION), model.encode(NAMES, QUESTION))
    np.testing.assert_allclose(result.scores, scores, atol=1e-6)
    assert result.names == [NAMES[number] for number in scores.argmax(axis=1)]
    assert sum(result.count_texts().values()) == len(TEXTS)
    with_vectors = classify(TEXTS, QUESTION, NAMES, model=model, embeddings=model.encode(TEXTS, QUESTION))
    np.testing.assert_allclose(with_vectors.scores, scores, atol=1e-6)


def test_ready_vectors_of_categories_replace_their_names(model):
    vectors = model.encode(["a cat", "too late", "rain"], QUESTION)
    result = classify(TEXTS, QUESTION, NAMES, model=model, category_vectors=vectors)
    np.testing.assert_allclose(result.scores, InBedder.similarity(model.encode(TEXTS, QUESTION), vectors), atol=1e-6)
    assert [category.name for category in result.categories] == NAMES
    with pytest.raises(InputError, match=r"category_vectors of shape \(2, 32\)"):
        classify(TEXTS, QUESTION, NAMES, model=model, category_vectors=vectors[:2])
    with pytest.raises(InputError, match="Vectors of 32 and 8 dimensions cannot be compared"):
        classify(TEXTS, QUESTION, NAMES, model=model, category_vectors=vectors[:, :8])


def test_descriptions_replace_names_and_examples_are_added(model):
    described = classify(TEXTS, QUESTION, {"a": NAMES[0], "b": NAMES[1], "c": NAMES[2]}, model=model)
    np.testing.assert_allclose(described.scores, classify(TEXTS, QUESTION, NAMES, model=model).scores, atol=1e-6)
    result = classify(TEXTS, QUESTION, NAMES, examples={"cats": ["a cat", "two cats"]}, model=model)
    names, examples = (normalize_vectors(model.encode(texts, QUESTION)) for texts in (NAMES, ["a cat", "two cats"]))
    names[0] = normalize_vectors(names[:1] + normalize_vectors(examples.mean(axis=0, keepdims=True)))[0]
    np.testing.assert_allclose(result.scores, InBedder.similarity(model.encode(TEXTS, QUESTION), names), atol=1e-6)


def test_categories_without_examples_keep_their_vectors():
    vectors = np.eye(3, dtype=np.float32)
    added = add_examples(vectors, vectors[1:2], np.array([0]))
    np.testing.assert_allclose(added, [[0.5**0.5, 0.5**0.5, 0], [0, 1, 0], [0, 0, 1]], atol=1e-6)


def test_texts_below_the_minimum_score_are_none_of_these(model):
    result = classify(TEXTS, QUESTION, NAMES, model=model, min_score=1.0)
    assert result.names == ["none of these"] * len(TEXTS)
    assert result.count_texts() == {**dict.fromkeys(NAMES, 0), "none of these": len(TEXTS)}
    assert result.describe_left_out().startswith(f"'none of these': {len(TEXTS)} texts of {len(TEXTS)} whose best score is below")
    row = result.rows(top=2)[0]
    assert (row["category"], row["probability"], row["category_1"]) == ("none of these", None, NAMES[result.scores[0].argmax()])
    auto = classify(TEXTS, QUESTION, NAMES, model=model, min_score="auto")
    assert auto.min_score == pytest.approx(np.quantile(np.sort(auto.scores, axis=1)[:, -2], 0.25))


def test_known_labels_calibrate_and_measure(model):
    texts = [f"{text} {i}" for i in range(4) for text in TEXTS]
    plain = classify(texts, QUESTION, NAMES, model=model)
    labels = [name.upper() for name in plain.names[:-4]] + [None, float("nan"), "", " "]
    result = classify(texts, QUESTION, NAMES, model=model, labels=labels)
    assert (result.agreement.count, result.agreement.accuracy) == (len(texts) - 4, 1.0)
    assert result.temperature == pytest.approx(0.005, rel=0.1)
    assert plain.temperature is plain.agreement is None
    few = classify(texts, QUESTION, NAMES, model=model, labels=[NAMES[0], *[""] * (len(texts) - 1)])
    assert (few.temperature, few.agreement.count) == (None, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["dogs"] * len(TEXTS)}, "None of the labels 'dogs' is a category"),
        ({"labels": ["cats"]}, "7 texts but 1 labels"),
        ({"min_score": "most"}, "min_score"),
        ({"min_lead": "most"}, "min_lead"),
        ({"min_score": float("nan")}, "min_score"),
        ({"embeddings": np.zeros((2, 3))}, "embeddings"),
    ],
)
def test_options_that_do_not_fit_are_refused(model, options, message):
    with pytest.raises(InputError, match=message):
        classify(TEXTS, QUESTION, NAMES, model=model, **options)


def test_no_text_and_too_many_categories_per_text_are_refused(model):
    with pytest.raises(InputError, match="no text to classify"):
        classify([], QUESTION, NAMES, model=model)
    with pytest.raises(InputError, match="top"):
        classify(TEXTS, QUESTION, NAMES, model=model).rows(top=4)


def test_a_frame_keeps_the_index_of_a_column(model):
    texts = pandas.Series(TEXTS, index=[f"id {i}" for i in range(len(TEXTS))])
    frame = classify(texts, QUESTION, NAMES, model=model).to_frame(top=3)
    assert frame.index.tolist() == texts.index.tolist()
    assert frame.columns.tolist()[:5] == ["text", "category", "score", "probability", "category_2"]
    assert (frame["score"] >= frame["score_2"]).all()


def test_categories_become_groups_for_the_report(model, tmp_path):
    best_scores = classify(TEXTS, QUESTION, NAMES, model=model).scores.max(axis=1)
    result = classify(TEXTS, QUESTION, NAMES, model=model, min_score=float(np.median(best_scores)))
    groups = make_category_groups(result, model)
    assert "none of these" in result.names
    assert not groups.is_group(groups.names.index("none of these"))
    assert [groups.names[label] for label in groups.labels] == result.names
    assert groups.notes == [result.describe_left_out()]
    assert groups.answers == model.answer(TEXTS, QUESTION)
    save_report([groups], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert all(name in page for name in groups.names)


def test_labels_are_matched_whatever_their_spelling_and_type(make_model):
    model = InBedder(make_model("bert"))
    texts = ["a b", "c d", "e f"]
    result = classify(texts, "What?", ["Cafe\u0301", "1"], model=model, labels=["caf\u00e9", 1.0, None])
    assert result.agreement.count == 2


def test_none_of_these_and_not_sure_are_told_apart(model):
    scores = np.sort(classify(TEXTS, QUESTION, NAMES, model=model).scores, axis=1)
    best, leads = scores[:, -1], scores[:, -1] - scores[:, -2]
    min_score, min_lead = float(np.median(best)), float(np.median(leads))
    result = classify(TEXTS, QUESTION, NAMES, model=model, min_score=min_score, min_lead=min_lead)
    is_none, is_unsure = best < min_score, (best >= min_score) & (leads < min_lead)
    assert is_none.any()
    assert is_unsure.any()
    assert [name == "none of these" for name in result.names] == is_none.tolist()
    assert [name == "not sure" for name in result.names] == is_unsure.tolist()
    counts = result.count_texts()
    assert (counts["none of these"], counts["not sure"], sum(counts.values())) == (is_none.sum(), is_unsure.sum(), len(TEXTS))
    assert [row["category"] for row in result.rows()] == result.names
    auto = classify(TEXTS, QUESTION, NAMES, model=model, min_lead="auto")
    assert auto.min_lead == pytest.approx(np.quantile(leads, 0.25))


@pytest.fixture(scope="module")
def mixed_result(model):
    """Texts in categories, in none of them, and with a category that is not sure."""
    scores = np.sort(classify(TEXTS, QUESTION, NAMES, model=model).scores, axis=1)
    limits = {"min_score": float(np.median(scores[:, -1])), "min_lead": float(np.median(scores[:, -1] - scores[:, -2]))}
    result = classify(TEXTS, QUESTION, NAMES, model=model, **limits)
    assert {"none of these", "not sure"} < set(result.names)
    return result


def test_the_page_has_the_outcomes_of_the_table(model, mixed_result, tmp_path):
    groups = make_category_groups(mixed_result, model)
    assert [groups.names[label] for label in groups.labels] == mixed_result.names
    assert groups.names[-2:] == ["none of these", "not sure"]
    counts = {name: count for name, count in mixed_result.count_texts().items() if count}
    assert dict(zip(groups.names, groups.sizes, strict=True)) == counts
    assert groups.notes == [mixed_result.describe_left_out(), mixed_result.describe_unsure()]
    assert groups.notes[1].startswith(f"'not sure': {counts['not sure']} text")
    without_category = [name in ("none of these", "not sure") for name in mixed_result.names]
    assert (groups.group_labels < 0).tolist() == without_category
    save_report([groups], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('<article class="card cnone">') == 2


def test_the_page_says_categories(model, tmp_path):
    groups = make_category_groups(classify(TEXTS, QUESTION, NAMES, model=model, min_lead="auto"), model)
    object.__setattr__(groups, "mixed", [True] * len(groups.names))
    save_report([groups], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    count = len(groups.names) - 1
    assert f'data-unit="category">{count} {"category" if count == 1 else "categories"}</span>' in page
    assert "marks loose categories: their answers differ. Read" in page
    assert "resampled" not in page
    assert "Groups are clusters" not in page
    assert "The categories were given; a text is in the one whose vector is nearest to that of its answer." in page


def test_the_two_best_categories_of_each_text_are_listed(mixed_result):
    order = np.argsort(-mixed_result.scores, axis=1)
    for number, row in enumerate(mixed_result.rows(top=2)):
        first, second = order[number, :2]
        assert (row["category_1"], row["category_2"]) == (NAMES[first], NAMES[second])
        expected = mixed_result.scores[number, [first, second]]
        assert [row["score_1"], row["score_2"]] == pytest.approx(expected, abs=1e-4)
        assert row["score"] == row["score_1"]
        assert (row["probability"] is None) == (row["category"] in ("none of these", "not sure"))
    assert list(mixed_result.rows()[0]) == ["category", "score", "probability"]


def test_the_accuracy_tells_missing_categories_from_wrong_ones():
    agreement = LabelledRows.of(np.array([0, 0, 1, 1, -1, 2]), np.array([0, 1, -1, 1, 0, -1]), 2)
    assert (agreement.count, agreement.accuracy, agreement.categorized_count) == (4, 0.5, 3)
    assert agreement.categorized_accuracy == pytest.approx(2 / 3)
    assert np.isnan(LabelledRows.of(np.array([0]), np.array([-1]), 2).categorized_accuracy)
