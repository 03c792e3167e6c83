import numpy as np
import pytest

from inbedder import InBedder
from inbedder.encoding.guided import encode_guided
from inbedder.errors import InputError
from tests.conftest import TEXTS


def linear(count=2000, wide=20, deep=12, noise=0.01):
    draw = np.random.default_rng(0)
    generic = draw.normal(size=(count, wide)).astype(np.float32)
    targets = generic @ draw.normal(size=(wide, deep)) + 3 + noise * draw.normal(size=(count, deep))
    return generic, targets.astype(np.float32)


@pytest.fixture
def reader():
    """Encodes by looking up, and counts."""

    class Reader:
        def __init__(self, targets):
            self.targets, self.read = targets, []

        def __call__(self, rows):
            self.read += rows.tolist()
            return self.targets[rows]

    return Reader


def test_a_linear_relation_is_found_from_its_sample_alone(reader):
    generic, targets = linear()
    read = reader(targets)
    vectors = encode_guided(read, generic, sample=200)
    assert len(read.read) == 200
    assert np.abs(vectors - targets).max() < 0.2
    assert vectors.cosine > 0.999
    assert (vectors[vectors.sample] == targets[vectors.sample]).all()
    assert vectors.dtype == np.float32


def test_the_cosine_is_that_of_rows_outside_the_sample(reader):
    generic, targets = linear(noise=2.0)
    vectors = encode_guided(reader(targets), generic, sample=300, low=0.0)
    rest = np.setdiff1d(np.arange(len(targets)), vectors.sample)
    a, b = np.asarray(vectors)[rest], targets[rest]
    outside = ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean()
    assert abs(outside - vectors.cosine) < 0.02


def test_where_the_map_is_poor_every_text_is_read_and_that_is_said(reader, caplog):
    generic, _ = linear()
    targets = np.random.default_rng(1).normal(size=(len(generic), 12)).astype(np.float32)
    read = reader(targets)
    vectors = encode_guided(read, generic, sample=100)
    assert sorted(read.read) == list(range(len(generic)))
    assert (np.asarray(vectors) == targets).all()
    assert vectors.cosine == 1.0
    assert "all 2000 texts are encoded" in caplog.text


def test_few_texts_are_all_read(reader):
    generic, targets = linear(80)
    vectors = encode_guided(reader(targets), generic, sample=100)
    assert (np.asarray(vectors) == targets).all()
    assert len(vectors.sample) == 80


def test_the_draw_depends_on_its_seed_alone(reader):
    generic, targets = linear()
    one, same, other = (encode_guided(reader(targets), generic, sample=100, seed=seed) for seed in (0, 0, 1))
    assert (np.asarray(one) == np.asarray(same)).all()
    assert (one.sample != other.sample).any()


def test_a_sample_too_small_is_refused(reader):
    with pytest.raises(InputError, match="at least 50"):
        encode_guided(reader(None), linear()[0], sample=49)


def test_a_model_maps_from_its_generic_vectors(make_model):
    model = InBedder(make_model("opt"))
    texts = [f"{TEXTS[i % 4]} {i}" for i in range(200)]
    vectors = model.encode_guided(texts, "What?", sample=60)
    assert vectors.shape == (200, model.dimension)
    read = model.encode([texts[i] for i in vectors.sample], "What?")
    assert np.abs(np.asarray(vectors)[vectors.sample] - read).max() < 1e-5
    with pytest.raises(InputError, match=r"200 texts but generic of shape \(3, 4\)"):
        model.encode_guided(texts, "What?", generic=np.zeros((3, 4), np.float32))


def test_what_is_derived_from_guided_vectors_claims_nothing(reader):
    import copy
    import pickle

    generic, targets = linear()
    vectors = encode_guided(reader(targets), generic, sample=100)
    assert vectors.cosine is not None
    derived_arrays = (vectors[:5], vectors * 2, vectors.copy(), vectors.astype(float), copy.deepcopy(vectors))
    for derived in derived_arrays:
        assert getattr(derived, "cosine", None) is None
        assert getattr(derived, "sample", None) is None
    again = pickle.loads(pickle.dumps(vectors))
    assert type(again) is np.ndarray
    assert (again == vectors).all()
