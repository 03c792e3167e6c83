import numpy as np
import pytest

pytest.importorskip("langchain_core")

from langchain_core.documents import BaseDocumentCompressor, Document

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder.integrations.langchain import InstructedCompressor, InstructedEmbeddings

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


@pytest.fixture
def compressor(make_model):
    return InstructedCompressor(instruction=QUESTION, model=InBedder(make_model("bert")), k=2)


def test_the_most_relevant_documents_are_kept(compressor):
    documents = [Document(text, metadata={"row": row}) for row, text in enumerate(TEXTS)]
    best_documents = compressor.compress_documents(documents, "battery")
    vectors = compressor.model.encode(["battery", *TEXTS], QUESTION, normalize_embeddings=True)
    scores = (vectors[1:] @ vectors[0]).tolist()
    best_rows = sorted(range(3), key=lambda row: -scores[row])[:2]
    assert isinstance(compressor, BaseDocumentCompressor)
    assert [document.metadata["row"] for document in best_documents] == best_rows
    assert [document.metadata["relevance_score"] for document in best_documents] == pytest.approx(
        [scores[row] for row in best_rows], abs=1e-5
    )
    assert documents[0].metadata == {"row": 0}


def test_a_model_is_used_by_name_and_what_is_unknown_is_refused(make_model):
    name = make_model("bert")
    assert InstructedCompressor(instruction=QUESTION, model=name).model.name == name
    for fields in ({"embedder": "mini"}, {"top_n": 1}, {"k": 0}, {"model": "/does/not/exist"}):
        with pytest.raises((ValueError, ModelError)):
            InstructedCompressor(instruction=QUESTION, **{"model": name, **fields})


def test_no_documents_stay_no_documents(compressor):
    assert compressor.compress_documents([], "battery") == []


def test_documents_and_queries_are_embedded_under_their_instructions(make_model):
    model = InBedder(make_model("bert"))
    embeddings = InstructedEmbeddings(QUESTION, model, query_instruction="@topic", batch_size=2)
    expected = model.encode(TEXTS, QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embeddings.embed_query("a"), model.encode("a", "@topic", normalize_embeddings=True), atol=1e-5)
    with_one_instruction = InstructedEmbeddings(QUESTION, model)
    np.testing.assert_allclose(with_one_instruction.embed_query(TEXTS[0]), expected[0], atol=1e-5)


def test_without_instructions_an_embedding_model_uses_its_own_prompts(make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding")
    embeddings = InstructedEmbeddings(model=model)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), model.encode_document(TEXTS), atol=1e-5)
    np.testing.assert_allclose(embeddings.embed_query("a"), model.encode_query("a"), atol=1e-5)
