import numpy as np
import pytest

pytest.importorskip("bertopic")

from bertopic import BERTopic
from bertopic.backend._utils import select_backend
from bertopic.dimensionality import BaseDimensionalityReduction
from sklearn.cluster import KMeans

from inbedder import InBedder
from inbedder.integrations.bertopic import AnswerRepresentation, InstructedBackend

TEXTS = [
    f"{problem} number {n}" for problem in ("the battery died", "the parcel came late", "nobody answered me") for n in range(12)
]
QUESTION = "What is the complaint about?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def fit_topics(**options):
    return BERTopic(umap_model=BaseDimensionalityReduction(), hdbscan_model=KMeans(3, random_state=0), **options).fit(TEXTS)


def test_without_an_instruction_a_backend_gives_general_purpose_vectors(model):
    backend = InstructedBackend(model=model)
    topic_model = fit_topics(embedding_model=backend)
    assert topic_model.embedding_model is backend
    assert len(topic_model.topics_) == len(TEXTS)
    np.testing.assert_array_equal(backend.embed_documents(TEXTS[:3], verbose=False), model.encode(TEXTS[:3]))


def test_a_backend_embeds_under_its_instruction(model):
    backend = InstructedBackend(QUESTION, model)
    assert select_backend(backend) is backend
    np.testing.assert_array_equal(backend.embed_documents(TEXTS), model.encode(TEXTS, QUESTION))


def test_topics_are_named_by_the_answers_of_their_documents(model):
    names = AnswerRepresentation(QUESTION, model, nr_docs=5, top_n_answers=2)
    topic_model = fit_topics(embedding_model=InstructedBackend(QUESTION, model), representation_model=names)
    answers = set(model.answer(TEXTS, QUESTION))
    for topic, ranked in topic_model.get_topics().items():
        assert 1 <= len(ranked) <= 2
        assert {answer for answer, _ in ranked} <= answers, topic
        shares = [share for _, share in ranked]
        assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
    assert names.get_params()["nr_docs"] == 5


def test_a_topic_without_answers_keeps_its_words(model, monkeypatch):
    silent = InBedder(model.name)
    monkeypatch.setattr(silent, "answer", lambda texts, *_args, **_options: [" "] * len(texts))
    backend = InstructedBackend(model=model)
    names = AnswerRepresentation(QUESTION, silent)
    topics = fit_topics(embedding_model=backend, representation_model=names).get_topics()
    words = fit_topics(embedding_model=backend).get_topics()
    assert topics.keys() == words.keys()
    for topic, ranked in topics.items():  # the order of words of equal weight may differ
        assert [weight for _, weight in ranked] == pytest.approx([weight for _, weight in words[topic]])
