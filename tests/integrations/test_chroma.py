import numpy as np
import pytest

pytest.importorskip("chromadb")

import chromadb

from inbedder import InBedder
from inbedder.integrations.chroma import InstructedEmbeddingFunction

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


def test_a_stored_collection_asks_its_question_again(make_model, tmp_path):
    name = make_model("bert")
    function = InstructedEmbeddingFunction(QUESTION, name)
    collection = chromadb.PersistentClient(tmp_path).create_collection("reviews", embedding_function=function)
    collection.add(ids=["0", "1", "2"], documents=TEXTS)
    stored = chromadb.PersistentClient(tmp_path).get_collection("reviews")
    expected = InBedder(name).encode([*TEXTS, "battery"], QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(stored.get(["0", "1", "2"], include=["embeddings"])["embeddings"], expected[:3], atol=1e-5)
    results = stored.query(query_texts=["battery"], n_results=3)
    order = np.argsort(-expected[:3] @ expected[3])
    assert results["documents"] == [[TEXTS[row] for row in order]]
    np.testing.assert_allclose(results["distances"][0], 1 - (expected[:3] @ expected[3])[order], atol=1e-4)  # cosine distances


def test_an_unknown_model_is_reported_before_a_collection_is_made():
    with pytest.raises(Exception, match="Cannot load the model '/does/not/exist'"):
        InstructedEmbeddingFunction(QUESTION, "/does/not/exist")
