import json
import shutil

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.cache.store import hash_entry
from inbedder.errors import InputError, ModelError
from inbedder.prompting.templates import DefaultInstructions, choose_default_instructions, get_template
from inbedder.vectors.vectors import concatenate_vectors, normalize_vectors
from tests.conftest import assert_close

QUERY = "Represent the question for retrieving supporting documents:"
DOCUMENT = "Represent the document for retrieval:"
SEARCH = "Given a web search query, retrieve relevant passages that answer the query"


@pytest.fixture
def sentence_model(make_model, tmp_path):
    """A sentence-transformers checkpoint with its own prompts."""

    def make(prompts=None, default=None, **pooling):
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(make_model("headless-bert"), folder)
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
        (folder / "modules.json").write_text(
            json.dumps([{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds])
        )
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean", **pooling}))
        config = {"prompts": prompts or {}, "default_prompt_name": default}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
        return InBedder(folder)

    return make


def list_prompts(model):
    return tuple(
        model.prompt("T", instruction)
        for instruction in (model.pipeline.defaults.any, model.pipeline.defaults.query, model.pipeline.defaults.document)
    )


def test_instructor_models_ask_queries_and_documents_differently(sentence_model):
    model = sentence_model({"query": "", "document": ""}, include_prompt=False)
    assert model.template.name == "instructor"
    assert list_prompts(model) == ("T", f"{QUERY}T", f"{DOCUMENT}T")
    assert np.array_equal(model.encode_query("cats"), model.encode("cats", QUERY))
    assert np.array_equal(model.encode_document(["cats"]), model.encode(["cats"], DOCUMENT))
    assert np.abs(model.encode_query("cats") - model.encode_document("cats")).max() > 1e-3


def test_an_instruction_replaces_the_default_of_queries_and_documents(sentence_model):
    model = sentence_model(include_prompt=False)
    assert np.array_equal(model.encode_query("cats", "dogs:"), model.encode("cats", "dogs:"))
    assert np.array_equal(model.encode_document("cats", "dogs:"), model.encode("cats", "dogs:"))
    assert np.allclose(np.linalg.norm(model.encode_query(["cats"], normalize_embeddings=True), axis=1), 1)


def test_plain_models_get_no_instruction(sentence_model):
    model = sentence_model()
    assert model.template.name == "prefix"
    assert list_prompts(model) == ("T", "T", "T")


def test_prompts_of_the_checkpoint_take_precedence(sentence_model):
    model = sentence_model({"query": "search_query: ", "passage": "search_document: ", "other": "x"}, default="other")
    assert list_prompts(model) == ("xT", "search_query: T", "search_document: T")
    assert np.array_equal(model.encode("T"), model.encode("T", "x"))


@pytest.mark.parametrize(("name", "separator"), [("e5-instruct", "\nQuery: "), ("qwen3-embedding", "\nQuery:")])
def test_the_template_of_queries_follows_the_checkpoints_prompt(sentence_model, name, separator):
    model = sentence_model({"query": f"Instruct: Find it{separator}", "document": ""})
    assert model.template.name == name
    assert list_prompts(model) == ("T", f"Instruct: Find it{separator}T", "T")
    assert model.prompt("T", "Tell topics apart") == f"Instruct: Tell topics apart{separator}T"


def test_named_templates_have_their_own_search_instruction():
    template = get_template("qwen3-embedding")
    assert choose_default_instructions(template, {}) == DefaultInstructions("", SEARCH, "")
    assert choose_default_instructions(template, {"query": "query: "}) == DefaultInstructions("", SEARCH, "")


def test_models_that_answer_embed_documents_without_a_question(make_model):
    model = InBedder(make_model("opt"))
    assert choose_default_instructions(model.template, None) == DefaultInstructions("@generic", None, None)
    assert np.array_equal(model.encode_query("cats", "What animal?"), model.encode("cats", "What animal?"))
    assert np.array_equal(model.encode_document("cats"), model.encode("cats"))
    assert np.array_equal(model.encode_query("cats"), model.encode("cats", "@generic"))


def test_an_empty_instruction_gives_only_the_text_to_embedding_models(sentence_model, make_model):
    assert sentence_model({"query": "Instruct: Find it\nQuery: "}).prompt("T", "") == "T"
    assert InBedder(make_model("opt")).prompt("T", "").startswith("### Input:\nT")


def test_an_instruction_for_each_text_and_several_for_all(sentence_model):
    model = sentence_model(include_prompt=False)
    vectors = model.encode(["cats", "dogs"], ["a:", ""])
    assert np.abs(vectors[1] - model.encode("dogs")).max() < 1e-6
    array = model.encode_many(["cats", "dogs"], ["a:", "b:"])
    assert np.abs(array[1, 0] - model.encode("cats", "b:")).max() < 1e-6


def test_only_the_last_question_vectors_are_cached(make_model, monkeypatch):
    monkeypatch.setattr("inbedder.encoding.instruction_vectors.MAX_CACHED_INSTRUCTIONS", 3)
    model = InBedder(make_model("bert"), subtract_instruction=True)
    fresh = InBedder(make_model("bert"), subtract_instruction=True)
    questions = [f"What is {word}?" for word in ("this", "that", "it", "meant", "said")]
    for question in questions:
        model.encode("I love cats", question)
        assert len(model.pipeline.instruction_vectors._vectors) <= 3
    assert [key[0] for key in model.pipeline.instruction_vectors._vectors] == questions[-3:]
    at_once = model.encode(["I love cats"] * 5, questions)  # more at once than are cached
    assert len(model.pipeline.instruction_vectors._vectors) == 3
    assert np.allclose(at_once, fresh.encode(["I love cats"] * 5, questions), atol=1e-6)
    assert np.allclose(model.encode("I love cats", questions[0]), at_once[0], atol=1e-6)


TEXTS = ["I love cats", "", "The flight was three hours late 🛫", "I love dogs"]
QUESTIONS = ["What is it about?", "How does the writer feel?"]


@pytest.fixture
def pair(make_model, tmp_path):
    """A decoder whose settings name a masked LM as its second model, and each of the two without the other."""
    shutil.copytree(make_model("opt"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"beside": make_model("bert"), "subtract_instruction": True}))
    return InBedder(tmp_path / "m"), InBedder(tmp_path / "m", beside="none"), InBedder(make_model("bert"))


def test_vectors_of_two_models_are_concatenated_and_cosines_averaged(pair):
    both, first, second = pair
    for instruction in (QUESTIONS[0], [QUESTIONS[row % 2] for row in range(len(TEXTS))]):
        vectors, parts = both.encode(TEXTS, instruction), (first.encode(TEXTS, instruction), second.encode(TEXTS, instruction))
        assert vectors.shape == (len(TEXTS), both.dimension) == (len(TEXTS), first.dimension + second.dimension)
        assert_close(vectors, concatenate_vectors(*parts))
    rows = [row for row, text in enumerate(TEXTS) if text]  # the decoder's vector of "" minus the question's vector is zero
    means = (first.similarity(parts[0], parts[0]) + first.similarity(parts[1], parts[1])) / 2
    assert_close(both.similarity(vectors, vectors)[rows][:, rows], means[rows][:, rows])
    assert_close(np.linalg.norm(both.encode(TEXTS, QUESTIONS[0], normalize_embeddings=True), axis=1), np.ones(len(TEXTS)))


def test_a_second_model_takes_many_instructions_and_no_texts(pair):
    both, first, second = pair
    vectors = both.encode_many(TEXTS, QUESTIONS)
    assert_close(vectors, concatenate_vectors(first.encode_many(TEXTS, QUESTIONS), second.encode_many(TEXTS, QUESTIONS)), 1e-4)
    assert both.encode([], QUESTIONS[0]).shape == (0, both.dimension)
    assert_close(both.encode(TEXTS[0], QUESTIONS[0]), vectors[0, 0], 1e-4)


def test_other_poolings_and_answers_use_only_the_first_model(pair):
    both, first, _ = pair
    for pooling, layer in (("avg-ppt", -1), ("1st-gen", 1)):
        expected = first.replace(pooling=pooling, layer=layer).encode(TEXTS, QUESTIONS[0])
        np.testing.assert_array_equal(both.replace(pooling=pooling, layer=layer).encode(TEXTS, QUESTIONS[0]), expected)
    assert both.answer(TEXTS, QUESTIONS[0]) == first.answer(TEXTS, QUESTIONS[0])
    vectors = first.encode(TEXTS, QUESTIONS[0])
    assert both.nearest_words(
        concatenate_vectors(vectors, np.ones((len(TEXTS), 2, 1))[:, 0].repeat(both.pipeline.second_model.dimension, 1))
    ) == (first.nearest_words(normalize_vectors(vectors)))


def test_the_spec_names_both_models_and_each_has_its_cache_space(pair, tmp_path):
    both, first, second = pair
    assert len({both.spec.key(), first.spec.key(), second.spec.key()}) == 3
    cached_model = InBedder(first.name, cache=tmp_path / "kept")
    vectors = cached_model.encode(TEXTS, QUESTIONS[0])
    assert sorted(space["model"] for space in cached_model.pipeline.store.info()) == sorted([first.name, second.name])
    np.testing.assert_array_equal(InBedder(first.name, cache=tmp_path / "kept").encode(TEXTS, QUESTIONS[0]), vectors)
    key = hash_entry(TEXTS[0], QUESTIONS[0])
    assert cached_model.pipeline.cached_vectors([key])[key].shape == (cached_model.dimension,)


def test_the_second_model_must_be_a_model(make_model):
    with pytest.raises(InputError, match="beside must be the name of a model"):
        InBedder(make_model("opt"), beside=False)
    with pytest.raises(ModelError, match="nowhere"):
        InBedder(make_model("opt"), beside="nowhere/at-all")


def test_the_answer_head_reads_only_the_first_models_vectors(pair):
    both, first, _ = pair
    assert both.nearest_words(np.ones((2, 3), dtype=np.float32)) == [[], []]
    vectors = first.replace(pooling="avg-gen").encode(TEXTS, QUESTIONS[0])
    assert both.replace(pooling="avg-gen").nearest_words(vectors) == first.replace(pooling="avg-gen").nearest_words(vectors)
