import json
from dataclasses import replace

import pytest

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.options import Reencoding
from inbedder.vector_spec import VectorSpec


@pytest.fixture(scope="module")
def spec(make_model):
    return InBedder(make_model("bert"), beside=make_model("roberta"), filter_words=("the",)).spec


def test_json_round_trips(spec, make_model):
    reencoding = InBedder(make_model("opt"), pooling="re-enc", reencoding=Reencoding(n=2)).spec
    for example in (spec, reencoding):
        assert VectorSpec.from_json(example.to_json()) == example
        assert VectorSpec.from_dict(json.loads(json.dumps(example.to_dict()))).key() == example.key()


def test_locations_of_files_do_not_matter(spec):
    renamed = replace(spec, model="elsewhere", hub_revision="main", second_model=replace(spec.second_model, model="there"))
    assert renamed.key() == spec.key()
    assert renamed.differences(spec, exact=True) == []


def test_differences_are_described(spec):
    changed = replace(spec, encoding=replace(spec.encoding, mask_length=6), second_model=replace(spec.second_model, weights="x"))
    assert spec.differences(changed) == [
        "mask_length was 3 and is 6",
        f"second_model weights was {spec.second_model.weights!r} and is 'x'",
    ]
    assert spec.key() != changed.key()


def test_a_missing_second_model_is_a_difference(spec):
    assert any(line.startswith("second_model weights was") for line in spec.differences(replace(spec, second_model=None)))


def test_the_spec_of_pooled_states_ignores_the_combination(spec):
    combined = replace(
        spec, encoding=replace(spec.encoding, subtract_instruction=True, normalize_embeddings=True), base_encoder="x"
    )
    assert combined.of_pooled_states().key() == spec.of_pooled_states().key()
    assert spec.of_pooled_states(("a",)).key() != spec.of_pooled_states().key()
    assert spec.of_answers().key() == replace(spec, encoding=replace(spec.encoding, pooling="avg-all")).of_answers().key()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": "m"}', "null", '{"encoding": 3}', "[" * 100_000])
def test_a_damaged_spec_is_refused(text):
    with pytest.raises(InputError, match="stored settings of a model are damaged"):
        VectorSpec.from_json(text)


def test_a_stored_option_of_another_type_is_refused(spec):
    table = spec.to_dict()
    table["encoding"]["layer"] = "last"
    with pytest.raises(InputError, match="layer must be a whole number"):
        VectorSpec.from_dict(table)


def test_another_model_is_refused_with_advice(spec):
    changed = replace(spec, encoding=replace(spec.encoding, layer=1))
    with pytest.raises(InputError, match=r"It was made with .* read in another way: layer was -1 and is 1. .* Do this."):
        spec.check(changed, "It was made", "Do this.")
    spec.check(replace(spec, compute_dtype="bfloat16"), "It was made", "Do this.")


@pytest.mark.parametrize(("name", "value"), [("model", 5), ("weights", None), ("base_encoder", ["a"]), ("encoding", {})])
def test_a_stored_setting_of_another_type_is_damage(spec, name, value):
    with pytest.raises(InputError, match="stored settings of a model are damaged"):
        VectorSpec.from_dict(spec.to_dict() | {name: value})
