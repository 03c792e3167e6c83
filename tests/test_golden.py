"""Vectors equal those of the paper authors' code on the same weights (golden.npz was computed by it)."""

import json

import numpy as np
import pytest

from inbedder import InBedder
from tests.conftest import GOLDEN

VECTORS = np.load(GOLDEN / "golden.npz", allow_pickle=False)
ASKED = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("key", VECTORS.files)
def test_vectors_equal_those_of_the_authors_code(key, batch_size):
    kind, pooling, layer = key.split("__")
    model = InBedder(GOLDEN / kind, pooling=pooling, layer=int(layer.removeprefix("layer")), dtype="float32")
    vectors = model.encode(ASKED["texts"], ASKED["instructions"], batch_size=batch_size)
    assert np.abs(vectors - VECTORS[key]).max() <= 1e-4


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_greedy_answers_equal_those_of_the_authors_code(kind):
    answers = InBedder(GOLDEN / kind).answer(ASKED["texts"], ASKED["instructions"])
    assert answers == [answer.strip() for answer in ASKED[f"{kind}/answers"]]
