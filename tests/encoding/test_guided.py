import json
import shutil

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.encoding.guided import encode_general, encode_guided
from inbedder.errors import InputError
from tests.conftest import TEXTS, assert_close


def make_linear_data(count=2000, width=20, depth=12, noise=0.01):
    rng = np.random.default_rng(0)
    generic = rng.normal(size=(count, width)).astype(np.float32)
    targets = generic @ rng.normal(size=(width, depth)) + 3 + noise * rng.normal(size=(count, depth))
    return generic, targets.astype(np.float32)


@pytest.fixture
def make_lookup():
    """A class that encodes rows by looking them up, and records them."""

    class Lookup:
        def __init__(self, targets):
            self.targets, self.rows = targets, []

        def __call__(self, rows):
            self.rows += rows.tolist()
            return self.targets[rows]

    return Lookup


def test_a_linear_relation_is_recovered_from_the_sample(make_lookup):
    generic, targets = make_linear_data()
    encode = make_lookup(targets)
    vectors = encode_guided(encode, generic, sample=200)
    assert len(encode.rows) == 200
    assert np.abs(vectors - targets).max() < 0.2
    assert vectors.cosine > 0.999
    assert (vectors[vectors.sample] == targets[vectors.sample]).all()
    assert vectors.dtype == np.float32


def test_the_cosine_is_that_of_rows_outside_the_sample(make_lookup):
    generic, targets = make_linear_data(noise=2.0)
    vectors = encode_guided(make_lookup(targets), generic, sample=300, min_cosine=0.0)
    rows = np.setdiff1d(np.arange(len(targets)), vectors.sample)
    a, b = np.asarray(vectors)[rows], targets[rows]
    cosine = ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean()
    assert abs(cosine - vectors.cosine) < 0.02


def test_a_poor_map_is_reported_and_every_text_is_encoded(make_lookup, caplog):
    generic, _ = make_linear_data()
    targets = np.random.default_rng(1).normal(size=(len(generic), 12)).astype(np.float32)
    encode = make_lookup(targets)
    vectors = encode_guided(encode, generic, sample=100)
    assert sorted(encode.rows) == list(range(len(generic)))
    assert (np.asarray(vectors) == targets).all()
    assert vectors.cosine == 1.0
    assert "Encoding all 2000 texts" in caplog.text


def test_few_texts_are_all_encoded(make_lookup):
    generic, targets = make_linear_data(80)
    vectors = encode_guided(make_lookup(targets), generic, sample=100)
    assert (np.asarray(vectors) == targets).all()
    assert len(vectors.sample) == 80


def test_the_sample_depends_only_on_its_seed(make_lookup):
    generic, targets = make_linear_data()
    first, repeated, reseeded = (encode_guided(make_lookup(targets), generic, sample=100, seed=seed) for seed in (0, 0, 1))
    assert (np.asarray(first) == np.asarray(repeated)).all()
    assert (first.sample != reseeded.sample).any()


def test_a_sample_too_small_is_refused(make_lookup):
    with pytest.raises(InputError, match="at least 50"):
        encode_guided(make_lookup(None), make_linear_data()[0], sample=49)


def test_a_model_maps_from_its_general_purpose_vectors(make_model):
    model = InBedder(make_model("opt"))
    texts = [f"{TEXTS[i % 4]} {i}" for i in range(200)]
    vectors = model.encode_guided(texts, "What?", sample=60)
    assert vectors.shape == (200, model.dimension)
    encoded = model.encode([texts[i] for i in vectors.sample], "What?")
    assert np.abs(np.asarray(vectors)[vectors.sample] - encoded).max() < 1e-5
    with pytest.raises(InputError, match=r"200 texts but generic of shape \(3, 4\)"):
        model.encode_guided(texts, "What?", generic=np.zeros((3, 4), np.float32))


def test_the_map_starts_from_the_second_models_vectors_of_all_texts(make_model):
    model = InBedder(make_model("opt"), beside=make_model("bert"))
    texts = [f"{TEXTS[i % 4]} {i}" for i in range(200)]
    vectors = np.asarray(model.encode_guided(texts, "What?", sample=150))
    appended = model.pipeline.second_model.encode(texts, "What?")
    mapped = vectors[:, -appended.shape[1] :] / np.sqrt(0.5)
    assert (mapped * appended).sum(1).min() > 0.99


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_general_purpose_vectors_of_any_dtype_map_like_float32(make_model, dtype):
    model, texts = InBedder(make_model("bert")), [f"text {number}" for number in range(60)]
    generic = (np.random.default_rng(0).normal(size=(60, 6)) * 40).astype(dtype)
    expected = model.encode_guided(texts, "What?", sample=50, generic=generic.astype(np.float32))
    assert np.allclose(model.encode_guided(texts, "What?", sample=50, generic=generic), expected, atol=1e-5)


def test_arrays_derived_from_guided_vectors_have_no_metadata(make_lookup):
    import copy
    import pickle

    generic, targets = make_linear_data()
    vectors = encode_guided(make_lookup(targets), generic, sample=100)
    assert vectors.cosine is not None
    derived_arrays = (vectors[:5], vectors * 2, vectors.copy(), vectors.astype(float), copy.deepcopy(vectors))
    for derived in derived_arrays:
        assert getattr(derived, "cosine", None) is None
        assert getattr(derived, "sample", None) is None
    unpickled = pickle.loads(pickle.dumps(vectors))
    assert type(unpickled) is np.ndarray
    assert (unpickled == vectors).all()


def test_a_map_starts_from_two_layers_of_the_base_encoder(make_model, tmp_path):
    shutil.copytree(make_model("bert"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert")}))
    model = InBedder(tmp_path / "m")
    general, expected = encode_general(model, TEXTS), model.encode(TEXTS)
    assert_close(general[:, : expected.shape[1]], expected)
    assert general.shape == (len(TEXTS), 2 * expected.shape[1])
    without_base = InBedder(make_model("bert"))
    np.testing.assert_array_equal(encode_general(without_base, TEXTS), without_base.encode(TEXTS))
