"""Questions about the whole text add the base encoder's vector; other questions do not."""

import json
import shutil

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.encoding.base_weights import (
    FULL_COSINE,
    MAX_WEIGHT,
    MIN_COSINE,
    PROBES,
    BaseWeights,
    add_base_vectors,
    compute_base_weight,
)
from inbedder.errors import InputError, ModelError
from inbedder.search import Index
from inbedder.vectors import normalize_vectors
from tests.conftest import assert_close

TEXTS = ["I love cats", "", "The flight was three hours late 🛫", "I love dogs", "I love cats"]
TOPIC, MIDDLE, FEELING = "What is this text about?", "What happens?", "How does the writer feel?"
WEIGHTS = {TOPIC: 2.0, MIDDLE: 0.5, FEELING: 0.0}


def make_pairs(cosine):
    """Return eight pairs of vectors with that cosine."""
    instructed_vectors = np.tile(np.array([3.0, 0.0], dtype=np.float32), (len(PROBES), 1))
    return instructed_vectors, np.tile(np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32), (len(PROBES), 1))


@pytest.mark.parametrize(
    ("cosine", "weight"),
    [
        (-1.0, 0),
        (0.3, 0),
        (MIN_COSINE, 0),
        ((MIN_COSINE + FULL_COSINE) / 2, MAX_WEIGHT / 2),
        (FULL_COSINE, MAX_WEIGHT),
        (0.9, MAX_WEIGHT),
        (1.0, MAX_WEIGHT),
    ],
)
def test_the_weight_grows_with_the_cosine_of_answers_and_base_vectors(cosine, weight):
    assert compute_base_weight(*make_pairs(cosine)) == pytest.approx(weight, abs=1e-4)


def test_sums_of_directions_have_length_1():
    instructed_vectors, base_vectors = (
        np.array([[0.0, 4.0], [5.0, 0.0]], dtype=np.float32),
        np.array([[9.0, 0.0], [5.0, 1.0]], dtype=np.float32),
    )
    sums = add_base_vectors(instructed_vectors, base_vectors, np.array([[2.0], [0.0]], dtype=np.float32))
    assert_close(sums, np.array([[2.0, 1.0], [5.0 * 5**0.5, 0.0]]) / 5**0.5)
    assert sums.dtype == np.float32


def test_zero_vectors_add_nothing():
    assert_close(add_base_vectors(np.zeros((1, 2)), np.array([[0.0, 3.0]]), np.full((1, 1), 2.0)), np.array([[0.0, 1.0]]))
    assert not add_base_vectors(np.zeros((1, 2)), np.zeros((1, 2)), np.full((1, 1), 2.0)).any()


class Base:
    """A base encoder whose vectors are all the same."""

    def encode(self, texts, *, show_progress_bar):
        """Return one row per text."""
        return np.tile(np.array([1.0, 0.0], dtype=np.float32), (len(texts), 1))


def test_each_instruction_is_probed_once_and_the_last_ones_are_cached(monkeypatch):
    monkeypatch.setattr("inbedder.encoding.base_weights.MAX_CACHED_QUESTIONS", 2)
    probed, base_weights = [], BaseWeights()

    def embed(texts, instructions):
        assert tuple(texts[: len(PROBES)]) == PROBES
        probed.extend(dict.fromkeys(instructions))
        return np.array([[1.0, 0.0] if instruction == TOPIC else [0.0, 1.0] for instruction in instructions], dtype=np.float32)

    assert base_weights.find_weights({TOPIC, FEELING}, embed, Base()) == {TOPIC: MAX_WEIGHT, FEELING: 0}
    assert base_weights.find_weights({TOPIC}, embed, Base()) == {TOPIC: MAX_WEIGHT}
    assert sorted(probed) == sorted([TOPIC, FEELING])
    assert set(base_weights.find_weights({"a", "b", "c"}, embed, Base())) == {"a", "b", "c"}
    assert base_weights.find_weights({TOPIC}, embed, Base()) == {TOPIC: MAX_WEIGHT}
    assert probed.count(TOPIC) == 2


@pytest.fixture
def folder(make_model, tmp_path):
    """A masked LM with a base encoder, whose settings add its vectors."""
    shutil.copytree(make_model("bert"), tmp_path / "m")
    settings = {"base_encoder": make_model("headless-bert"), "add_generic": True}
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps(settings))
    return tmp_path / "m"


@pytest.fixture
def both(folder, monkeypatch):
    """The model with and without its base encoder; the questions have the weights above."""
    monkeypatch.setattr(
        BaseWeights, "find_weights", lambda _self, instructions, *_: {name: WEIGHTS[name] for name in instructions}
    )
    return InBedder(folder), InBedder(folder, add_generic=False)


def combine_by_definition(plain_model, texts, instructions):
    """Combine vectors as the module's docstring defines it."""
    instructed_vectors, base_vectors = plain_model.encode(texts, instructions), plain_model.encode(texts)
    pairs = zip(instructed_vectors, base_vectors, (WEIGHTS[instruction] for instruction in instructions), strict=True)
    return np.stack(
        [
            normalize_vectors(normalize_vectors(instructed) + weight * normalize_vectors(base)) if weight else instructed
            for instructed, base, weight in pairs
        ]
    )


@pytest.mark.parametrize("instructions", [[TOPIC] * 5, [MIDDLE] * 5, [TOPIC, FEELING, MIDDLE, FEELING, TOPIC]])
def test_a_question_about_the_whole_text_adds_the_base_vector(both, instructions):
    model, plain_model = both
    assert_close(model.encode(TEXTS, instructions), combine_by_definition(plain_model, TEXTS, instructions))
    assert_close(model.encode(TEXTS[0], instructions[0]), combine_by_definition(plain_model, TEXTS[:1], instructions[:1])[0])


def test_other_questions_change_no_vector_and_read_no_text_twice(both, monkeypatch):
    model, plain_model = both
    model.encode(TEXTS[0], FEELING)
    monkeypatch.setattr(model.base_encoder, "encode", lambda *_args, **_options: pytest.fail("the texts were read twice"))
    assert (model.encode(TEXTS, FEELING) == plain_model.encode(TEXTS, FEELING)).all()


def test_without_a_question_or_with_another_pooling_nothing_is_added(both):
    model, plain_model = both
    assert (model.encode(TEXTS) == plain_model.encode(TEXTS)).all()
    assert (model.with_pooling("avg-all").encode(TEXTS, TOPIC) == plain_model.with_pooling("avg-all").encode(TEXTS, TOPIC)).all()
    assert (model.encode(TEXTS, TOPIC, filter_words=["the"]) == plain_model.encode(TEXTS, TOPIC, filter_words=["the"])).all()


def test_several_questions_at_once_and_no_texts(both):
    model, plain_model = both
    vectors = model.encode_many(TEXTS, [TOPIC, FEELING])
    assert_close(vectors[0], combine_by_definition(plain_model, TEXTS, [TOPIC] * 5))
    assert_close(vectors[1], plain_model.encode(TEXTS, FEELING))
    assert model.encode([], TOPIC).shape == (0, model.dimension)


def test_the_question_vector_is_subtracted_first(folder, both):
    _, plain_model = both
    differences = plain_model.encode(TEXTS, MIDDLE) - plain_model.encode("", MIDDLE)
    differences[TEXTS.index("")] = 0  # exactly, whatever the rounding in its batch
    model = InBedder(folder, subtract_instruction=True)
    assert_close(
        model.encode(TEXTS, MIDDLE),
        normalize_vectors(normalize_vectors(differences) + 0.5 * normalize_vectors(plain_model.encode(TEXTS))),
    )


def test_vectors_with_and_without_the_base_share_a_cache(folder, both, tmp_path):
    for model in both:
        for _ in range(2):
            cached_model = InBedder(folder, add_generic=model.options.encoding.add_generic, cache=tmp_path / "kept")
            assert_close(cached_model.encode(TEXTS, TOPIC), model.encode(TEXTS, TOPIC))


def test_weights_come_from_probing_the_model(folder):
    model, plain_model = InBedder(folder), InBedder(folder, add_generic=False)
    weight = compute_base_weight(plain_model.encode(PROBES, TOPIC), plain_model.encode(PROBES))
    instructed_vectors, base_vectors = plain_model.encode(TEXTS, TOPIC), plain_model.encode(TEXTS)
    assert_close(
        model.encode(TEXTS, TOPIC), add_base_vectors(instructed_vectors, base_vectors, np.full((5, 1), weight, dtype=np.float32))
    )


def test_the_bundled_model_knows_which_questions_are_about_the_whole_text():
    model = InBedder()
    model.encode(["a"] * 6, [TOPIC, "What are people discussing?", MIDDLE, FEELING, "Which product is it?", "Who is mentioned?"])
    weights = model.combiner.question_cache.base_weights._weights
    assert {weights[TOPIC], weights["What are people discussing?"]} == {MAX_WEIGHT}
    assert weights[MIDDLE] < MAX_WEIGHT / 2
    assert {weights[FEELING], weights["Which product is it?"], weights["Who is mentioned?"]} == {0}


def test_a_model_without_a_base_encoder_refuses_add_generic(make_model):
    with pytest.raises(InputError, match="has no base encoder"):
        InBedder(make_model("bert"), add_generic=True)


def test_a_base_encoder_of_another_dimension_is_refused(make_model, tmp_path):
    shutil.copytree(make_model("opt"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"base_encoder": "all-MiniLM-L6-v2"}))
    with pytest.raises(ModelError, match="have length 384, the model's 32"):
        InBedder(tmp_path / "m", add_generic=True).encode("a", TOPIC)


def test_a_second_model_that_adds_base_vectors_has_another_spec(folder, make_model):
    adding = InBedder(make_model("opt"), beside=str(folder))
    (folder / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert"), "add_generic": False}))
    assert InBedder(make_model("opt"), beside=str(folder)).spec.differences(adding.spec) == [
        "second_model add_generic was False and is True"
    ]


def test_an_index_keeps_the_option_it_was_built_with(folder, tmp_path):
    for name, adds_generic in (("with", True), ("without", False)):
        Index.create(tmp_path / name, TEXTS[2:], model=InBedder(folder, add_generic=adds_generic))
        assert Index.open(tmp_path / name).model.options.encoding.add_generic is adds_generic
    with pytest.raises(InputError, match="add_generic was False and is True"):
        Index.open(tmp_path / "without", model=InBedder(folder))
