"""Questions about the whole of a text take the text's own vector, others do not."""

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


def at_cosine(cosine):
    """Eight pairs of vectors with that cosine."""
    asked = np.tile(np.array([3.0, 0.0], dtype=np.float32), (len(PROBES), 1))
    return asked, np.tile(np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32), (len(PROBES), 1))


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
def test_the_weight_grows_with_how_near_answers_lie_to_the_texts_own_vectors(cosine, weight):
    assert compute_base_weight(*at_cosine(cosine)) == pytest.approx(weight, abs=1e-4)


def test_both_vectors_count_by_their_direction_and_the_sum_has_length_1():
    asked, generic = np.array([[0.0, 4.0], [5.0, 0.0]], dtype=np.float32), np.array([[9.0, 0.0], [5.0, 1.0]], dtype=np.float32)
    found = add_base_vectors(asked, generic, np.array([[2.0], [0.0]], dtype=np.float32))
    assert_close(found, np.array([[2.0, 1.0], [5.0 * 5**0.5, 0.0]]) / 5**0.5)
    assert found.dtype == np.float32


def test_vectors_of_zeros_add_nothing_and_are_no_error():
    assert_close(add_base_vectors(np.zeros((1, 2)), np.array([[0.0, 3.0]]), np.full((1, 1), 2.0)), np.array([[0.0, 1.0]]))
    assert not add_base_vectors(np.zeros((1, 2)), np.zeros((1, 2)), np.full((1, 1), 2.0)).any()


class Base:
    """A generic base whose vectors all point the same way."""

    def encode(self, texts, *, show_progress_bar):
        """One row per text."""
        return np.tile(np.array([1.0, 0.0], dtype=np.float32), (len(texts), 1))


def test_each_instruction_is_probed_once_and_the_last_ones_are_remembered(monkeypatch):
    monkeypatch.setattr("inbedder.encoding.base_weights.MAX_CACHED_QUESTIONS", 2)
    probed, known = [], BaseWeights()

    def asked(texts, instructions):
        assert tuple(texts[: len(PROBES)]) == PROBES
        probed.extend(dict.fromkeys(instructions))
        return np.array([[1.0, 0.0] if instruction == TOPIC else [0.0, 1.0] for instruction in instructions], dtype=np.float32)

    assert known.find_weights({TOPIC, FEELING}, asked, Base()) == {TOPIC: MAX_WEIGHT, FEELING: 0}
    assert known.find_weights({TOPIC}, asked, Base()) == {TOPIC: MAX_WEIGHT}
    assert sorted(probed) == sorted([TOPIC, FEELING])
    assert set(known.find_weights({"a", "b", "c"}, asked, Base())) == {"a", "b", "c"}
    assert known.find_weights({TOPIC}, asked, Base()) == {TOPIC: MAX_WEIGHT}
    assert probed.count(TOPIC) == 2


@pytest.fixture
def folder(make_model, tmp_path):
    """A masked LM with a generic base, whose settings add its vectors."""
    shutil.copytree(make_model("bert"), tmp_path / "m")
    settings = {"base_encoder": make_model("headless-bert"), "add_generic": True}
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps(settings))
    return tmp_path / "m"


@pytest.fixture
def both(folder, monkeypatch):
    """The model as its settings say, and answering alone; the questions' weights are those above."""
    monkeypatch.setattr(
        BaseWeights, "find_weights", lambda _self, instructions, *_: {name: WEIGHTS[name] for name in instructions}
    )
    return InBedder(folder), InBedder(folder, add_generic=False)


def expected(alone, texts, instructions):
    """What the texts' vectors must be, by the definition."""
    asked, generic = alone.encode(texts, instructions), alone.encode(texts)
    pairs = zip(asked, generic, (WEIGHTS[instruction] for instruction in instructions), strict=True)
    return np.stack(
        [
            normalize_vectors(normalize_vectors(one) + weight * normalize_vectors(other)) if weight else one
            for one, other, weight in pairs
        ]
    )


@pytest.mark.parametrize("instructions", [[TOPIC] * 5, [MIDDLE] * 5, [TOPIC, FEELING, MIDDLE, FEELING, TOPIC]])
def test_a_question_about_the_whole_text_takes_the_texts_own_vector(both, instructions):
    model, alone = both
    assert_close(model.encode(TEXTS, instructions), expected(alone, TEXTS, instructions))
    assert_close(model.encode(TEXTS[0], instructions[0]), expected(alone, TEXTS[:1], instructions[:1])[0])


def test_other_questions_leave_vectors_as_they_were_and_read_nothing_twice(both, monkeypatch):
    model, alone = both
    model.encode(TEXTS[0], FEELING)
    monkeypatch.setattr(model.base_encoder, "encode", lambda *_args, **_options: pytest.fail("the texts were read twice"))
    assert (model.encode(TEXTS, FEELING) == alone.encode(TEXTS, FEELING)).all()


def test_without_a_question_or_read_in_another_way_nothing_is_added(both):
    model, alone = both
    assert (model.encode(TEXTS) == alone.encode(TEXTS)).all()
    assert (model.with_pooling("avg-all").encode(TEXTS, TOPIC) == alone.with_pooling("avg-all").encode(TEXTS, TOPIC)).all()
    assert (model.encode(TEXTS, TOPIC, filter_words=["the"]) == alone.encode(TEXTS, TOPIC, filter_words=["the"])).all()


def test_several_questions_at_once_and_no_texts(both):
    model, alone = both
    many = model.encode_many(TEXTS, [TOPIC, FEELING])
    assert_close(many[0], expected(alone, TEXTS, [TOPIC] * 5))
    assert_close(many[1], alone.encode(TEXTS, FEELING))
    assert model.encode([], TOPIC).shape == (0, model.dimension)


def test_what_the_instruction_says_is_taken_away_before(folder, both):
    _, alone = both
    asked = alone.encode(TEXTS, MIDDLE) - alone.encode("", MIDDLE)
    model = InBedder(folder, subtract_instruction=True)
    assert_close(
        model.encode(TEXTS, MIDDLE), normalize_vectors(normalize_vectors(asked) + 0.5 * normalize_vectors(alone.encode(TEXTS)))
    )


def test_a_cache_gives_the_same_vectors_with_and_without(folder, both, tmp_path):
    for model in both:
        for _ in range(2):
            kept = InBedder(folder, add_generic=model.options.encoding.add_generic, cache=tmp_path / "kept")
            assert_close(kept.encode(TEXTS, TOPIC), model.encode(TEXTS, TOPIC))


def test_weights_are_found_by_probing_the_model_itself(folder):
    model, alone = InBedder(folder), InBedder(folder, add_generic=False)
    weight = compute_base_weight(alone.encode(PROBES, TOPIC), alone.encode(PROBES))
    asked, generic = alone.encode(TEXTS, TOPIC), alone.encode(TEXTS)
    assert_close(model.encode(TEXTS, TOPIC), add_base_vectors(asked, generic, np.full((5, 1), weight, dtype=np.float32)))


def test_the_bundled_model_knows_which_questions_are_about_the_whole_text():
    model = InBedder()
    model.encode(["a"] * 6, [TOPIC, "What are people discussing?", MIDDLE, FEELING, "Which product is it?", "Who is mentioned?"])
    known = model.combiner.question_cache.base_weights._weights
    assert {known[TOPIC], known["What are people discussing?"]} == {MAX_WEIGHT}
    assert known[MIDDLE] < MAX_WEIGHT / 2
    assert {known[FEELING], known["Which product is it?"], known["Who is mentioned?"]} == {0}


def test_a_model_without_a_generic_base_refuses(make_model):
    with pytest.raises(InputError, match="has no base encoder"):
        InBedder(make_model("bert"), add_generic=True)


def test_a_base_with_longer_or_shorter_vectors_is_refused(make_model, tmp_path):
    shutil.copytree(make_model("opt"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"base_encoder": "all-MiniLM-L6-v2"}))
    with pytest.raises(ModelError, match="have another length"):
        InBedder(tmp_path / "m", add_generic=True).encode("a", TOPIC)


def test_a_second_model_that_adds_its_own_vectors_has_another_spec(folder, make_model):
    adding = InBedder(make_model("opt"), beside=str(folder))
    (folder / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert"), "add_generic": False}))
    assert InBedder(make_model("opt"), beside=str(folder)).spec.differences(adding.spec) == [
        "second_model add_generic was False and is True"
    ]


def test_an_index_is_read_as_it_was_built(folder, tmp_path):
    for name, added in (("with", True), ("without", False)):
        Index.create(tmp_path / name, TEXTS[2:], model=InBedder(folder, add_generic=added))
        assert Index.open(tmp_path / name).model.options.encoding.add_generic is added
    with pytest.raises(InputError, match="add_generic was False and is True"):
        Index.open(tmp_path / "without", model=InBedder(folder))
