import numpy as np
import pytest

pytest.importorskip("spacy")

import spacy

from inbedder import InBedder
from inbedder.integrations.spacy import InstructedVectors

TEXTS = ["The battery died", "", "The box was crushed \U0001f4a5"]
QUESTION = "What is the complaint about?"


def test_a_saved_pipeline_sets_the_vectors_of_the_question(make_model, tmp_path):
    name = make_model("bert")
    nlp = spacy.blank("en")
    assert isinstance(nlp.add_pipe("inbedder", config={"instruction": QUESTION, "model": name}), InstructedVectors)
    nlp.to_disk(tmp_path / "pipeline")
    expected = InBedder(name).encode(TEXTS, QUESTION)
    for pipeline in (nlp, spacy.load(tmp_path / "pipeline")):
        np.testing.assert_allclose([doc.vector for doc in pipeline.pipe(TEXTS, batch_size=2)], expected, atol=1e-5)
        np.testing.assert_allclose(pipeline(TEXTS[0]).vector, expected[0], atol=1e-5)
