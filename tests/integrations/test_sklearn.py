import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from inbedder import InBedder, classify, cluster
from inbedder.errors import InputError
from inbedder.integrations.shared_models import load_shared
from inbedder.integrations.sklearn import InstructedClassifier, InstructedClusterer, InstructedVectorizer

TEXTS = ["The battery died", "Great price", "The box was crushed", "Nobody answered"] * 3
LABELS = ["product", "price", "delivery", "service"] * 3
QUESTION = "What is the complaint about?"


@pytest.fixture
def name(make_model):
    return make_model("bert")


def test_texts_become_the_models_vectors(name):
    vectors = InstructedVectorizer(QUESTION, name).fit_transform(TEXTS)
    np.testing.assert_allclose(vectors, load_shared(name).encode(TEXTS, QUESTION), atol=1e-5)
    np.testing.assert_array_equal(InstructedVectorizer(QUESTION, name).transform(np.array(TEXTS)), vectors)
    lengths = np.linalg.norm(InstructedVectorizer(QUESTION, name, normalize_embeddings=True).transform(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


NUMBERLESS_CHECKS = [
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]
"""scikit-learn's checks that pass no table of numbers; ``check_estimator`` runs only one check on an estimator of texts."""


@pytest.mark.parametrize("check", NUMBERLESS_CHECKS)
def test_it_passes_scikit_learns_checks(name, check):
    vectorizer = InstructedVectorizer(QUESTION, name)
    getattr(estimator_checks, check)("InstructedVectorizer", vectorizer)


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_check_estimator_finds_no_fault(name):
    results = estimator_checks.check_estimator(InstructedVectorizer(QUESTION, name), on_fail=None, on_skip=None)
    assert [result for result in results if result["status"] not in ("passed", "skipped")] == []


@pytest.mark.parametrize("loaded_before", [False, True])
def test_clones_share_the_model(name, loaded_before):
    vectorizer = InstructedVectorizer(QUESTION, load_shared(name) if loaded_before else name, batch_size=7)
    copy = clone(vectorizer)
    assert copy.get_params() | {"model": None} == vectorizer.get_params() | {"model": None}
    assert load_shared(copy.model).backbone is load_shared(vectorizer.model).backbone


@pytest.mark.parametrize("loaded_before", [False, True])
def test_a_pickle_holds_the_models_name(name, loaded_before):
    vectorizer = InstructedVectorizer(QUESTION, InBedder(name) if loaded_before else name).fit(TEXTS)
    data = pickle.dumps(vectorizer)
    assert len(data) < 2000
    np.testing.assert_allclose(pickle.loads(data).transform(TEXTS), vectorizer.transform(TEXTS), atol=1e-5)


def test_a_table_keeps_its_index_and_gets_column_names(name):
    pandas = pytest.importorskip("pandas")
    vectorizer = InstructedVectorizer(QUESTION, name).set_output(transform="pandas")
    column = pandas.Series(TEXTS, index=range(100, 112))
    table = vectorizer.fit_transform(column)
    assert list(table.columns) == list(vectorizer.get_feature_names_out()) == [f"inbedder{number}" for number in range(32)]
    assert list(table.index) == list(column.index)


def test_it_combines_with_numbers_in_a_column_transformer(name):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "stars": range(12)})
    columns = ColumnTransformer([("text", InstructedVectorizer(QUESTION, name), "text"), ("stars", StandardScaler(), ["stars"])])
    pipeline = make_pipeline(columns, LogisticRegression()).fit(table, LABELS)
    assert pipeline[0].get_feature_names_out()[[0, -1]].tolist() == ["text__inbedder0", "stars__stars"]
    vectors = InstructedVectorizer(QUESTION, name).transform(table[["text"]])
    np.testing.assert_array_equal(vectors, InstructedVectorizer(QUESTION, name).transform(TEXTS))


def test_a_grid_search_encodes_each_text_once_per_instruction(name, tmp_path, monkeypatch):
    vectorizer = InstructedVectorizer(model=name, cache=str(tmp_path))
    model = load_shared(name, str(tmp_path))
    encoded_prompts = []
    embed = model.backbone.embed
    monkeypatch.setattr(model.backbone, "embed", lambda prompts, *args: encoded_prompts.extend(prompts) or embed(prompts, *args))
    grid = {"instructedvectorizer__instruction": [QUESTION, "@topic"], "logisticregression__C": [0.1, 1.0]}
    search = GridSearchCV(make_pipeline(vectorizer, LogisticRegression()), grid, cv=3).fit(TEXTS, LABELS)
    assert search.best_params_["instructedvectorizer__instruction"] in (QUESTION, "@topic")
    assert search.score(TEXTS, LABELS) > 0.9
    assert len(encoded_prompts) == 2 * len(set(TEXTS)) + 1  # and the empty text, for the dimension


def test_a_column_of_texts_in_two_dimensions_is_taken(name):
    column = np.array([["a b"], ["c d"]], dtype=object)
    assert np.array_equal(
        InstructedVectorizer(QUESTION, name).fit_transform(column), load_shared(name).encode(["a b", "c d"], QUESTION)
    )


@pytest.mark.parametrize("bad", ["one text", [["a"], ["b"]], [1, 2], None])
def test_anything_but_a_list_of_texts_is_refused(name, bad):
    with pytest.raises(InputError, match="X"):
        InstructedVectorizer(QUESTION, name).fit(bad)


def test_a_clusterer_agrees_with_cluster(name):
    texts = ["I love cats", "I love dogs", "It came late", "late again"]
    clusterer = clone(InstructedClusterer("What?", name, k=2, method="agglomerative", namer="words"))
    assert clusterer.get_params()["method"] == "agglomerative"
    expected = cluster(texts, "What?", name, 2, method="agglomerative", namer="words")
    assert clusterer.fit_predict(texts).tolist() == expected.labels.tolist()
    assert clusterer.set_params(k=3).fit(texts).result_.names != expected.names
    with pytest.raises(InputError, match="There is no option 'size'"):
        InstructedClusterer("What?", size=2)


def test_a_classifier_agrees_with_classify(name):
    examples = {"service": ["Nobody answered", "They hung up"], "price": ["Too dear"]}
    rows = [(text, label) for label, texts in examples.items() for text in texts]
    classifier = InstructedClassifier(QUESTION, name).fit(*zip(*rows, strict=True))
    expected = classify(TEXTS, QUESTION, ["price", "service"], examples=examples, model=load_shared(name))
    assert classifier.predict(TEXTS).tolist() == expected.names
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(classifier.decision_function(TEXTS), expected.scores[:, 1] - expected.scores[:, 0], atol=1e-5)
    assert classifier.score(TEXTS, expected.names) == 1


def test_a_classifier_without_names_knows_only_its_examples(name):
    classifier = InstructedClassifier(QUESTION, name, use_names=False).fit(TEXTS[:4], [0, 1, 2, 3])
    assert classifier.predict(TEXTS[:4]).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(classifier.category_vectors_, classifier._embed(TEXTS[:4]), atol=1e-5)


def test_a_grid_search_chooses_the_question_of_a_classifier(name, tmp_path):
    classifier = InstructedClassifier(model=name, cache=str(tmp_path))
    search = GridSearchCV(classifier, {"instruction": [QUESTION, "@topic"]}, cv=3).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.9
    assert clone(search.best_estimator_).get_params()["cache"] == str(tmp_path)


@pytest.mark.parametrize("check", NUMBERLESS_CHECKS)
def test_a_classifier_passes_scikit_learns_checks(name, check):
    getattr(estimator_checks, check)("InstructedClassifier", InstructedClassifier(QUESTION, name))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 12, "only one category"),
        (["a", "b"], "12 texts but y has 2"),
        (None, "y"),
        (["a", "b", float("nan")] * 4, "y: entry 2 is missing"),
        (["a", None, "b"] * 4, "y: entry 1 is missing"),
        (["", "a", "b"] * 4, "y: entry 0 is missing"),
    ],
)
def test_a_classifier_refuses_labels_that_do_not_fit(name, labels, message):
    with pytest.raises(InputError, match=message):
        InstructedClassifier(QUESTION, name).fit(TEXTS, labels)
