import sys
from dataclasses import replace

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.backbones.confidence import ScoredAnswer
from inbedder.encoding import reencode
from inbedder.encoding.reencode import embed_sentences
from inbedder.errors import InputError, MissingExtraError, ModelError
from inbedder.models.bundled import BASE_NAME
from inbedder.options import Reencoding
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture
from tests.conftest import TEXTS

GREEDY = Reencoding(n=1, temperature=0)
SAMPLED = Reencoding(n=3, temperature=1.0, seed=1)
CHANGES = [{"n": 2}, {"temperature": 0.5}, {"top_p": 0.5}, {"seed": 2}]


@pytest.fixture
def model(make_model):
    return InBedder(make_model("llama"), pooling="re-enc", max_new_tokens=4).replace(pooling="re-enc", reencoding=SAMPLED)


@pytest.fixture
def other_encoder(make_model, tmp_path):
    """Folder of a tiny sentence-transformers model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    words = Transformer(make_model("bert"))
    SentenceTransformer(modules=[words, Pooling(32)], device="cpu").save(str(tmp_path / "encoder"))
    return str(tmp_path / "encoder")


@pytest.fixture
def counted(monkeypatch):
    """Count the answers that the re-encoder embeds in each call."""
    counts, function = [], reencode.embed_sentences

    def count(texts, *arguments):
        counts.append(len(texts))
        return function(texts, *arguments)

    monkeypatch.setattr(reencode, "embed_sentences", count)
    return counts


@pytest.mark.parametrize("family", ["llama", "opt", "bert", "t5"])
def test_one_greedy_answer_is_the_embedding_of_the_answer(make_model, family):
    from sentence_transformers import SentenceTransformer

    from inbedder.models.bundled import find_base_folder

    model = InBedder(make_model(family), max_new_tokens=4)
    vectors = model.replace(pooling="re-enc", reencoding=GREEDY).encode(TEXTS, "What?")
    expected = SentenceTransformer(str(find_base_folder()), device="cpu").encode(model.answer(TEXTS, "What?"))
    assert vectors.shape == (len(TEXTS), 384)
    assert np.abs(vectors - expected).max() < 1e-6


def test_the_vector_is_the_mean_over_the_sampled_answers(model):
    vectors = model.encode(TEXTS, "What?")
    assert [len(row) for row in vectors.answers] == [3] * len(TEXTS)
    assert len({answer for row in vectors.answers for answer in row}) > len(TEXTS)
    for vector, row in zip(vectors, vectors.answers, strict=True):
        assert np.abs(vector - embed_sentences(row, BASE_NAME).mean(0)).max() < 1e-6


def test_the_answers_are_those_of_the_same_settings(model):
    answers = model.answer(TEXTS, "What?", n=3, temperature=1.0, top_p=0.9, seed=1)
    assert model.encode(TEXTS, "What?").answers == answers


def test_a_seed_reproduces_vectors_and_another_seed_changes_them(model):
    vectors = model.encode(TEXTS, "What?")
    assert (model.encode(TEXTS, "What?") == vectors).all()
    reseeded = model.replace(pooling="re-enc", reencoding=replace(SAMPLED, seed=2))
    assert np.abs(reseeded.encode(TEXTS, "What?") - vectors).max() > 1e-2


def test_an_empty_answer_is_embedded_as_such_and_counted(model, monkeypatch, caplog):
    answers = [ScoredAnswer(text, 0.5) for text in ("", "red shoes", " ")]
    monkeypatch.setattr(model.backbone, "answer", lambda prompts, sampling: [answers] * len(prompts))
    vectors = model.encode(["a", "b"], "What?")
    assert np.abs(vectors[0] - embed_sentences(["", "red shoes", ""], BASE_NAME).mean(0)).max() < 1e-6
    assert vectors.answers == [["", "red shoes", ""]] * 2
    assert vectors.empty == 4
    assert "4 of 6 answers are empty and are embedded as such" in caplog.text


def test_one_string_gives_one_vector_and_no_texts_none(model):
    vector = model.encode(TEXTS[0], "What?", normalize_embeddings=True)
    assert vector.shape == (384,) == (model.dimension,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert len(vector.answers[0]) == 3
    assert model.encode([], "What?").shape == (0, 384)
    assert model.encode_many(TEXTS[:2], ["What?", "Why?"]).shape == (2, 2, 384)


def test_many_texts_are_embedded_in_chunks(model, monkeypatch):
    expected = model.encode(TEXTS, "What?")
    monkeypatch.setattr(reencode, "TEXTS_PER_CHUNK", 2)
    monkeypatch.setattr(reencode, "ANSWERS_PER_BATCH", 3)
    assert np.abs(model.encode(TEXTS, "What?") - expected).max() < 1e-6


def test_cached_answers_are_neither_sampled_nor_embedded_again(make_model, tmp_path, counted):
    first = InBedder(make_model("llama"), pooling="re-enc", cache=tmp_path)
    vectors = first.encode(TEXTS, "What?")
    second = InBedder(make_model("llama"), pooling="re-enc", cache=tmp_path)
    second.backbone.answer = None
    counted.clear()
    cached_vectors = second.encode(TEXTS, "What?")
    assert (cached_vectors == vectors).all()
    assert cached_vectors.answers == vectors.answers
    assert counted == []


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_answers_of_other_settings_are_not_found(make_model, tmp_path, monkeypatch, change):
    model = InBedder(make_model("llama"), pooling="re-enc", cache=tmp_path)
    model.encode(["a"], "What?")
    answer, calls = model.backbone.answer, []
    monkeypatch.setattr(model.backbone, "answer", lambda prompts, sampling: calls.append(sampling) or answer(prompts, sampling))
    model.encode(["a"], "What?")
    assert calls == []
    model.replace(pooling="re-enc", reencoding=Reencoding(**change)).encode(["a"], "What?")
    assert len(calls) == 1
    assert len([space for space in model.pipeline.store.info() if space["results"] == "answers and confidences"]) == 2


def test_another_re_encoder_or_its_new_weights_find_no_cached_vectors(make_model, tmp_path, counted, other_encoder):
    from safetensors.torch import load_file, save_file

    model = InBedder(make_model("llama"), pooling="re-enc", cache=tmp_path / "kept")
    model.encode(["a"], "What?")
    variant = model.replace(pooling="re-enc", reencoding=Reencoding(encoder=other_encoder))
    for _ in range(2):
        counted.clear()
        vector = variant.encode("a", "What?")
        assert vector.shape == (32,)
        assert len(counted) == 1 or not counted
    assert counted == []
    weights = f"{other_encoder}/model.safetensors"
    save_file({name: tensor * 1.5 for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    assert np.abs(variant.encode("a", "What?") - vector).max() > 1e-4
    assert len(counted) == 1


def test_a_re_encoder_that_changes_while_it_is_read_is_refused(other_encoder, monkeypatch):
    read_file_states, states = reencode._read_file_states, iter([(), ("other",)])
    monkeypatch.setattr(reencode, "_read_file_states", lambda name: next(states))
    with pytest.raises(ModelError, match="changed while it was loaded"):
        embed_sentences(["a"], other_encoder)
    assert len(read_file_states(other_encoder)) > 3


def test_an_unknown_device_of_a_re_encoder_is_refused(other_encoder):
    with pytest.raises(ModelError, match="The device 'banana' cannot be used here"):
        embed_sentences(["a"], other_encoder, "banana")


def test_a_missing_re_encoder_is_named_before_answers_are_sampled(model, monkeypatch):
    monkeypatch.setattr(model.backbone, "answer", None)
    variant = model.replace(pooling="re-enc", reencoding=Reencoding(encoder="no/such-encoder"))
    with pytest.raises(ModelError, match="Cannot load the re-encoder 'no/such-encoder'"):
        variant.encode("a", "What?")


def test_without_sentence_transformers_the_install_command_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    reencode._load_encoder.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install sentence-transformers"):
        model.encode("a", "What?")


def test_a_model_that_does_not_answer_has_no_re_encoding(make_model):
    with pytest.raises(ModelError, match="has no pooling 're-enc'"):
        InBedder(make_model("headless-bert"), backbone="masked", pooling="re-enc")


def test_settings_that_do_not_apply_are_refused(model):
    with pytest.raises(InputError, match="filter_words filters hidden states"):
        model.encode("a", "What?", filter_words=["a"])
    with pytest.raises(InputError, match="n must be a whole number of at least 1"):
        Reencoding(n=0)
    assert model.nearest_words(model.encode(["a"], "What?")) == [[]]


@pytest.mark.parametrize("name", ["llama", "mini"])
def test_the_command_line_gives_the_same_vectors_twice(folder, monkeypatch, make_model, name):  # noqa: F811
    import pyarrow.parquet

    model = name if name == "mini" else make_model(name)
    options = [
        "-i",
        "@topic",
        "--model",
        model,
        "--pooling",
        "re-enc",
        "--re-enc-n",
        "5",
        "--re-enc-seed",
        "3",
        "--cache",
        "kept",
    ]
    assert run(monkeypatch, "embed", "reviews.csv", "-o", "v.npy", *options) == 0
    assert run(monkeypatch, "embed", "reviews.csv", "-o", "v.parquet", *options[:-2]) == 0
    vectors = np.load(folder / "v.npy", allow_pickle=False)
    table = pyarrow.parquet.read_table(folder / "v.parquet").to_pydict()
    assert vectors.shape == (4, 384)
    assert np.abs(vectors - np.array(table["embedding"])).max() < 1e-6
    assert [len(row) for row in table["answers"]] == [5] * 4
    assert run(monkeypatch, "cache", "info", "kept") == 0


def test_the_command_line_names_the_pooling_of_its_options(folder, monkeypatch, capsys):  # noqa: F811
    assert run(monkeypatch, "embed", "reviews.csv", "--re-enc-n", "5") == 2
    assert "need --pooling re-enc" in " ".join(capsys.readouterr().err.split())
