import pytest

pytest.importorskip("langchain_core")

from langchain_core.documents import BaseDocumentCompressor, Document

from inbedder import InBedder
from inbedder.integrations.langchain import InstructedCompressor

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


@pytest.fixture
def compressor(make_model):
    return InstructedCompressor(instruction=QUESTION, embedder=InBedder(make_model("bert")), k=2)


def test_the_documents_nearest_in_what_is_asked_are_kept(compressor):
    documents = [Document(text, metadata={"row": row}) for row, text in enumerate(TEXTS)]
    kept = compressor.compress_documents(documents, "battery")
    vectors = compressor.embedder.encode(["battery", *TEXTS], QUESTION, normalize_embeddings=True)
    scores = (vectors[1:] @ vectors[0]).tolist()
    best = sorted(range(3), key=lambda row: -scores[row])[:2]
    assert isinstance(compressor, BaseDocumentCompressor)
    assert [document.metadata["row"] for document in kept] == best
    assert [document.metadata["relevance_score"] for document in kept] == pytest.approx([scores[row] for row in best], abs=1e-5)
    assert documents[0].metadata == {"row": 0}


def test_no_documents_stay_none(compressor):
    assert compressor.compress_documents([], "battery") == []
