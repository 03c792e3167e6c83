import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.vectors.precision import PRECISIONS, quantize_vectors
from inbedder.vectors.vectors import similarity
from tests.conftest import blobs

VECTORS = np.array([[0.3, -0.6, 0.0], [-2.0, 1.0, 0.5]])


def test_int8_scales_each_vector_by_its_largest_number():
    assert quantize_vectors(VECTORS, "int8").tolist() == [[64, -127, 0], [-127, 64, 32]]
    assert quantize_vectors(VECTORS, "uint8").tolist() == [[192, 1, 128], [1, 192, 160]]
    assert not quantize_vectors(np.zeros((1, 4)), "int8").any()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_vector_does_not_depend_on_its_batch_or_its_length(precision):
    vectors = blobs((20, 20)).astype(np.float32)
    batch = quantize_vectors(vectors, precision)
    assert batch.dtype == PRECISIONS[precision]
    np.testing.assert_array_equal(quantize_vectors(vectors[3], precision), batch[3])
    np.testing.assert_array_equal(quantize_vectors(vectors[None], precision)[0], batch)
    assert quantize_vectors(vectors[:0], precision).shape == (0, *batch.shape[1:])
    if precision != "float32":
        np.testing.assert_array_equal(quantize_vectors(vectors * 1024, precision), batch)


def test_int8_keeps_cosines():
    vectors = np.random.default_rng(0).normal(size=(50, 384)).astype(np.float32)
    packed = quantize_vectors(vectors, "int8")
    assert np.abs(similarity(packed, packed) - similarity(vectors, vectors)).max() < 0.003


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_bits_are_those_of_sentence_transformers(precision):
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    vectors = np.random.default_rng(0).normal(size=(50, 19)).astype(np.float32)
    vectors[0, :9] = 0
    np.testing.assert_array_equal(quantize_vectors(vectors, precision), quantization.quantize_embeddings(vectors, precision))


@pytest.mark.parametrize("precision", ["int4", "bfloat16", None, 8])
def test_an_unknown_precision_is_refused(precision):
    with pytest.raises(InputError, match=r"Unknown precision .* Choose one of: float32, int8, uint8, binary, ubinary"):
        quantize_vectors(VECTORS, precision)
