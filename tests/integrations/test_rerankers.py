import pytest

pytest.importorskip("rerankers")

from rerankers import Document

from inbedder import InBedder
from inbedder.integrations.rerankers import InstructedRanker

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


@pytest.fixture
def ranker(make_model):
    return InstructedRanker(QUESTION, InBedder(make_model("bert")))


def test_documents_are_ranked_by_the_cosine_under_the_instruction(ranker):
    results = ranker.rank("battery", docs=TEXTS, doc_ids=["a", "b", "c"])
    vectors = ranker.model.encode(["battery", *TEXTS], QUESTION, normalize_embeddings=True)
    scores = dict(zip("abc", (vectors[1:] @ vectors[0]).tolist(), strict=True))
    assert [result.doc_id for result in results] == sorted(scores, key=lambda name: -scores[name])
    assert all(results.get_score_by_docid(name) == pytest.approx(score, abs=1e-5) for name, score in scores.items())
    assert [result.rank for result in results] == [1, 2, 3]
    assert ranker.score("battery", TEXTS[1]) == pytest.approx(scores["b"], abs=1e-5)


def test_documents_keep_their_metadata(ranker):
    results = ranker.rank("battery", docs=[Document(text, metadata={"n": len(text)}) for text in TEXTS])
    assert all(result.metadata["n"] == len(result.text) for result in results)


def test_no_documents_give_an_empty_ranking(ranker):
    assert ranker.rank("battery", docs=[]).results_count() == 0
