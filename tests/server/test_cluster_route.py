"""Groups over HTTP, of texts and of cached vectors."""

import pytest

from inbedder import InBedder, cluster
from inbedder.grouping.partition import group
from inbedder.vectors import normalize_vectors

TEXTS = ["I love cats", "I love dogs", "The delivery was late", "It came late", "cats and dogs", "late again"]
QUESTIONS = ["What animals do they love?", "@topic"]


def test_there_is_one_grouping_per_instruction_equal_to_the_librarys(client, tiny):
    body = client.post("/v1/clusters", json={"texts": TEXTS, "instructions": QUESTIONS, "k": 2, "seed": 3}).json()
    assert [grouping["instruction"] for grouping in body["data"]] == QUESTIONS
    for question, grouping in zip(QUESTIONS, body["data"], strict=True):
        expected = cluster(TEXTS, question, tiny, 2, 3)
        assert grouping["labels"] == expected.labels.tolist()
        assert (grouping["names"], grouping["keywords"]) == (expected.names, expected.keywords)
    plain = client.post("/v1/clusters", json={"texts": TEXTS}).json()["data"]
    assert [grouping["instruction"] for grouping in plain] == [None]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"texts": TEXTS, "ids": ["0" * 32] * 2},
        {"texts": ["a single text"]},
        {"texts": TEXTS, "k": 7},
        {"texts": TEXTS, "k": 0},
        {"texts": TEXTS, "k": "many"},
        {"texts": ["the same"] * 3, "k": 2},
        {"texts": TEXTS, "instructions": []},
        {"ids": ["0" * 32] * 2},
        {"ids": ["x", "y"]},
        {"ids": ["0" * 32] * 2, "instructions": ["What?"]},
    ],
)
def test_requests_that_cannot_be_grouped_are_refused(client, fields):
    assert client.post("/v1/clusters", json=fields).status_code == 422


def test_cached_vectors_are_grouped_by_their_ids_without_texts(make_client, make_model, tmp_path):
    model = InBedder(make_model("bert"), cache=tmp_path / "cache", max_length=64)
    client = make_client({"cached": model})
    rows = client.post("/v1/embeddings", json={"input": TEXTS, "instruction": "@topic"}).json()["data"]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(TEXTS)
    (grouping,) = client.post("/v1/clusters", json={"ids": ids, "k": 2, "seed": 3}).json()["data"]
    assert grouping["labels"] == group(normalize_vectors(model.encode(TEXTS, "@topic")), 2, 3).tolist()
    assert [len(words) > 0 for words in grouping["keywords"]] == [True, True]
    assert client.post("/v1/clusters", json={"ids": [*ids, "0" * 32]}).status_code == 422


def test_without_a_cache_vectors_have_no_ids(client):
    (row,) = client.post("/v1/embeddings", json={"input": "a"}).json()["data"]
    assert set(row) == {"object", "index", "embedding"}
