import numpy as np
import pytest

pytest.importorskip("haystack")

from haystack import Document, Pipeline

from inbedder import InBedder
from inbedder.integrations.haystack import InstructedDocumentEmbedder, InstructedTextEmbedder

QUESTION = "What is the complaint about?"


def test_documents_keep_their_fields_and_one_without_content_is_embedded(make_model):
    name = make_model("bert")
    documents = [Document(content="The battery died", meta={"row": 3}), Document(content=None), Document(content="")]
    embedded = InstructedDocumentEmbedder(QUESTION, name).run(documents)["documents"]
    expected = InBedder(name).encode(["The battery died", "", ""], QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose([document.embedding for document in embedded], expected, atol=1e-5)
    assert embedded[0].meta == {"row": 3} and documents[0].embedding is None
    assert InstructedDocumentEmbedder(QUESTION, name).run([]) == {"documents": []}


def test_a_saved_pipeline_asks_its_question_again(make_model):
    name = make_model("bert")
    pipeline = Pipeline()
    pipeline.add_component("embedder", InstructedTextEmbedder(QUESTION, name))
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["inbedder.integrations.haystack"])
    vector = loaded.run({"embedder": {"text": "battery"}})["embedder"]["embedding"]
    np.testing.assert_allclose(vector, InBedder(name).encode("battery", QUESTION, normalize_embeddings=True), atol=1e-5)
