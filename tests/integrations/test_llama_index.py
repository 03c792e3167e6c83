import asyncio
import pickle

import numpy as np
import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.schema import TextNode

from inbedder import InBedder
from inbedder.errors import InputError
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


def test_pickles_and_storage_keep_every_option_of_the_model(model):
    short = InstructedEmbedding(model.replace(truncate_dim=8), instruction=QUESTION)
    right = short.get_text_embedding("a")
    assert len(right) == 8
    for copy in (pickle.loads(pickle.dumps(short)), InstructedEmbedding.from_dict(short.to_dict()), short.model_copy()):
        np.testing.assert_allclose(copy.get_text_embedding("a"), right, atol=1e-5)


def test_models_with_other_options_have_other_cache_keys(model):
    nodes = [TextNode(text=text) for text in TEXTS]
    embeddings = [InstructedEmbedding(m, instruction=QUESTION) for m in (model, model.replace(pooling="avg-all"))]
    keys = {get_transformation_hash(nodes, embedding) for embedding in embeddings}
    assert len(keys) == 2


def test_a_model_that_is_passed_is_used_and_what_is_unknown_is_refused(model):
    assert InstructedEmbedding(model, model_name="mini")._model is model
    with pytest.raises(InputError, match="has no field 'question'"):
        InstructedEmbedding(model, question=QUESTION)
    with pytest.raises(InputError, match="model_name cannot be changed"):
        InstructedEmbedding(model).model_name = "small"


def test_an_index_retrieves_the_most_similar_node(model):
    embedding = InstructedEmbedding(model, instruction=QUESTION)
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    nodes = index.as_retriever(similarity_top_k=1).retrieve(TEXTS[2])
    assert [node.text for node in nodes] == [TEXTS[2]]
