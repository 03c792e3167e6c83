import asyncio

import numpy as np
import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding

from inbedder import InBedder
from inbedder.integrations.llama_index import InstructedEmbedding

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_nodes_and_queries_are_embedded_under_their_instructions(model):
    embedding = InstructedEmbedding(model, instruction=QUESTION, embed_batch_size=2)
    assert isinstance(embedding, BaseEmbedding) and embedding.model_name == model.name
    expected = model.encode(TEXTS, QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(embedding.get_text_embedding_batch(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embedding.get_text_embedding(TEXTS[0]), expected[0], atol=1e-5)
    np.testing.assert_allclose(embedding.get_query_embedding(TEXTS[1]), expected[1], atol=1e-5)
    with_query_instruction = InstructedEmbedding(model, instruction=QUESTION, query_instruction="@topic")
    np.testing.assert_allclose(
        with_query_instruction.get_query_embedding("a"), model.encode("a", "@topic", normalize_embeddings=True), atol=1e-5
    )


def test_the_asynchronous_methods_give_the_same(model):
    embedding = InstructedEmbedding(model, instruction=QUESTION)

    async def embed_both():
        return await embedding.aget_text_embedding_batch(TEXTS), await embedding.aget_query_embedding("a")

    texts, query = asyncio.run(embed_both())
    np.testing.assert_allclose(texts, embedding.get_text_embedding_batch(TEXTS), atol=1e-5)
    np.testing.assert_allclose(query, embedding.get_query_embedding("a"), atol=1e-5)


def test_it_is_serialized_by_name_and_restored(model):
    embedding = InstructedEmbedding(model, instruction=QUESTION)
    serialized = embedding.to_dict()
    assert serialized["class_name"] == "InstructedEmbedding" and serialized["instruction"] == QUESTION
    restored = InstructedEmbedding.from_dict(serialized)
    np.testing.assert_allclose(restored.get_text_embedding("a"), embedding.get_text_embedding("a"), atol=1e-5)


def test_an_index_retrieves_the_most_similar_node(model):
    embedding = InstructedEmbedding(model, instruction=QUESTION)
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    nodes = index.as_retriever(similarity_top_k=1).retrieve(TEXTS[2])
    assert [node.text for node in nodes] == [TEXTS[2]]
