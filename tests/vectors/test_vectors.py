"""Normalization, sums and cosines of vectors of every dtype, and vectors that do not depend on the batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.vectors.vectors import (
    VectorFormat,
    add_vectors,
    compute_row_cosines,
    normalize_vectors,
    similarity,
    similarity_pairwise,
)
from tests.conftest import blobs

DTYPES = ["int8", "int16", "int32", "int64", "float16", "float32", "float64"]
BLANKS = ["", " ", "\n\t", "\u200b", "\ufeff", "\u2060\u200d", "\x00"]
WORDS = ["I love cats", "I love cats", "I love dogs", "The delivery was late and the box was crushed, but the lamp works."]
QUESTION = "What is it about?"


@pytest.mark.parametrize("dtype", DTYPES)
def test_directions_are_those_of_float32_whatever_the_dtype(dtype):
    vectors = (np.abs(blobs((3, 3))) * 100).astype(dtype)
    expected = normalize_vectors(vectors.astype(np.float32))
    directions = normalize_vectors(vectors)
    assert directions.dtype == ("float64" if dtype == "float64" else "float32")
    assert np.allclose(directions, expected, atol=1e-6)
    assert np.allclose(np.linalg.norm(directions, axis=1), 1, atol=1e-6)
    assert np.allclose(similarity(vectors, vectors), expected @ expected.T, atol=1e-6)
    assert np.allclose(compute_row_cosines(vectors, vectors), 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_vector_stays_zero_whatever_the_dtype(dtype):
    assert not normalize_vectors(np.zeros((2, 3), dtype=dtype)).any()
    assert similarity(np.zeros(3, dtype=dtype), np.ones(3, dtype=dtype)) == 0


def test_shifted_or_packed_bytes_have_no_direction():
    with pytest.raises(InputError, match="The vectors are uint8"):
        similarity(np.ones((1, 2), dtype=np.uint8), np.ones((1, 2)))


def test_vectors_are_cut_before_they_are_scaled_and_packed():
    vectors = np.array([[[3.0, 4.0, 12.0]]], dtype=np.float32)
    assert np.allclose(VectorFormat(2, True).apply(vectors), [[[0.6, 0.8]]])
    assert VectorFormat(2).apply(vectors).tolist() == [[[3.0, 4.0]]]
    assert VectorFormat(2, True, "int8").apply(vectors).tolist() == [[[95, 127]]]
    assert np.array_equal(VectorFormat().apply(vectors), vectors)
    with pytest.raises(InputError, match="truncate_dim=4, but the vectors have 3 dimensions"):
        VectorFormat(4).apply(vectors)


def test_lengths_beyond_half_precision_do_not_overflow():
    vectors = np.full((2, 400), 60000, dtype=np.float16)
    assert np.allclose(normalize_vectors(vectors), 0.05)


def test_a_sum_that_is_only_rounding_is_exactly_zero():
    first = np.array([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [1e-9, 0.0]], dtype=np.float32)
    second = np.array([[-3.0, -4.0004], [-3.0, -4.001], [0.0, 0.0], [1e-9, 0.0]], dtype=np.float32)
    sums = add_vectors(first, second)
    assert not sums[0].any()
    assert sums[1].any() and sums[1, 1] < 0
    assert not sums[2].any()
    assert sums[3, 0] == np.float32(2e-9)


@pytest.fixture(scope="module", params=["subtract", "second model"])
def model(request, make_model):
    """A model whose vectors are scaled differences, and one with two models' vectors."""
    subtracting = {"subtract_instruction": True, "normalize_embeddings": True}
    if request.param == "subtract":
        return InBedder(make_model("bert"), **subtracting)
    return InBedder(make_model("opt"), beside=make_model("roberta"), **subtracting)


@given(neighbours=st.lists(st.sampled_from([*BLANKS, *WORDS]), max_size=5), text=st.sampled_from([*BLANKS, *WORDS]))
@settings(max_examples=25)
def test_neighbours_and_their_order_never_change_a_vector(model, neighbours, text):
    expected = model.encode([text], QUESTION)[0]
    for texts in ([text, *neighbours], [*neighbours, text], [*neighbours, text, text, *neighbours]):
        vectors = model.encode(texts, QUESTION)
        assert np.abs(vectors[[row for row, row_text in enumerate(texts) if row_text == text]] - expected).max() < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_blank_text_has_one_vector_alone_and_in_a_batch(make_model, dtype):
    model = InBedder(make_model("bert"), subtract_instruction=True, normalize_embeddings=True, dtype=dtype)
    for text in ("", " ", "\u200b"):
        vector = model.encode([text], QUESTION)[0]
        assert np.array_equal(vector, model.encode([text, *WORDS], QUESTION)[0])
        assert not vector.any()


def test_vectors_of_two_lengths_are_not_compared():
    with pytest.raises(InputError, match="Vectors of 3 and 2 dimensions cannot be compared"):
        similarity(np.ones((1, 3)), np.ones((4, 2)))
    with pytest.raises(InputError, match="Vectors of 3 and 2 dimensions cannot be compared"):
        similarity_pairwise(np.ones((4, 3)), np.ones((4, 2)))


def test_pairs_have_the_diagonal_of_the_matrix():
    first, second = blobs((3, 3)), np.abs(blobs((3, 3)))[::-1].copy()
    second[0] = 0
    np.testing.assert_allclose(similarity_pairwise(first, second), np.diag(similarity(first, second)), atol=1e-6)
    assert similarity_pairwise(first[1], first[1]) == pytest.approx([1])
    with pytest.raises(InputError, match="6 and 5 vectors do not make pairs"):
        similarity_pairwise(first, second[1:])


def test_a_cosine_is_never_above_one():
    vectors = np.random.default_rng(0).normal(size=(200, 7)).astype(np.float32)
    assert np.abs(similarity(vectors, vectors)).max() <= 1
