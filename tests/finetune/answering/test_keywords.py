import numpy as np
import pytest

import inbedder.encoding.reencode
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.keywords import cache_salient_words, find_salient_words
from inbedder_finetune.answering.qa_rows import load_rows
from inbedder_finetune.sources import Source
from tests.finetune.answering.test_qa_rows import write

AXES = {"cat": [1, 0, 0], "cats": [0.9, 0.1, 0], "sofa": [0.6, 0.6, 0], "rain": [0, 0, 1], "cold": [0, 0.5, 0.5]}
TEXTS = {"The cats and a cat on the sofa": [1, 0.2, 0], "Cold rain!": [0, 0.1, 1], "It is 12.": [1, 1, 1]}


@pytest.fixture
def encoded_texts(monkeypatch):
    encoded_texts = []

    def vectors(texts, _encoder, _device):
        encoded_texts.append(texts)
        return np.array([{**AXES, **TEXTS}[text] for text in texts], dtype=np.float32)

    monkeypatch.setattr(inbedder.encoding.reencode, "embed_sentences", vectors)
    monkeypatch.setattr(inbedder.encoding.reencode, "find_reencoder_revision", lambda *_: "pinned")
    return encoded_texts


def test_the_nearest_words_are_named_one_per_stem(encoded_texts):
    assert find_salient_words(list(TEXTS), 2, "any") == ["cat sofa", "rain cold", ""]


def test_texts_without_content_words_have_no_keywords(encoded_texts):
    assert find_salient_words(["It is 12.", "the"], 3, "any") == ["", ""]
    assert encoded_texts == []


def test_words_are_cached_on_disk(encoded_texts, tmp_path):
    assert cache_salient_words(list(TEXTS), 1, "any", str(tmp_path)) == ["cat", "rain", ""]
    before = len(encoded_texts)
    assert cache_salient_words(list(TEXTS), 1, "any", str(tmp_path)) == ["cat", "rain", ""]
    assert len(encoded_texts) == before
    cache_salient_words(list(TEXTS), 2, "any", str(tmp_path))
    assert len(encoded_texts) == before, "the vectors are cached, too"
    assert len(list(tmp_path.glob("words-*"))) == 2
    next(tmp_path.glob("words-*")).write_text("[", encoding="utf-8")
    assert cache_salient_words(list(TEXTS), 1, "any", str(tmp_path)) == ["cat", "rain", ""]


def test_a_source_may_take_keywords_as_answers(encoded_texts, tmp_path):
    write(tmp_path / "a.jsonl", [{"input": text, "instruction": "Why?", "output": "x"} for text in TEXTS for _ in range(2)])
    source = Source("a.jsonl", keywords=2, instructions=("What is it about?",))
    rows = load_rows(AnsweringData((source,), folder=str(tmp_path), cache=None))
    assert [(row.instruction, row.answer) for row in rows] == [
        ("What is it about?", "cat sofa"),
        ("What is it about?", "rain cold"),
    ]
