import numpy as np
import pytest

pytest.importorskip("keybert")

from keybert import KeyBERT
from keybert.backend._utils import select_backend

from inbedder import InBedder
from inbedder.integrations.keybert import InstructedBackend

TEXT = "The battery of the lamp died after a week and nobody answered"
QUESTION = "What is the complaint about?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_keybert_uses_the_backend_and_does_not_replace_it(model):
    backend = InstructedBackend(model=model)
    assert select_backend(backend) is backend
    assert {word for word, _ in KeyBERT(model=backend).extract_keywords(TEXT, top_n=2)} <= set(TEXT.lower().split())


def test_words_are_ranked_by_their_cosine_under_the_instruction(model):
    keywords = KeyBERT(model=InstructedBackend(QUESTION, model)).extract_keywords(TEXT, top_n=3)
    text, *words = model.encode([TEXT, *(word for word, _ in keywords)], QUESTION)
    cosines = model.similarity(np.stack(words), text[None])[:, 0]
    assert [score for _, score in keywords] == pytest.approx(cosines.tolist(), abs=1e-3)
    assert [score for _, score in keywords] == sorted((score for _, score in keywords), reverse=True)
