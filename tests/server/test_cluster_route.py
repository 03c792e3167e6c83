"""Groups over HTTP, of texts and of kept vectors."""

import pytest

from inbedder import InBedder, cluster
from inbedder.grouping.partition import group
from inbedder.vectors import unit

TEXTS = ["I love cats", "I love dogs", "The delivery was late", "It came late", "cats and dogs", "late again"]
ASKED = ["What animals do they love?", "@topic"]


def test_groups_are_those_of_the_library_one_grouping_per_instruction(client, tiny):
    body = client.post("/v1/clusters", json={"texts": TEXTS, "instructions": ASKED, "k": 2, "seed": 3}).json()
    assert [grouping["instruction"] for grouping in body["data"]] == ASKED
    for asked, grouping in zip(ASKED, body["data"], strict=True):
        expected = cluster(TEXTS, asked, tiny, 2, 3)
        assert grouping["labels"] == expected.labels.tolist()
        assert (grouping["names"], grouping["keywords"]) == (expected.names, expected.keywords)
    plain = client.post("/v1/clusters", json={"texts": TEXTS}).json()["data"]
    assert [grouping["instruction"] for grouping in plain] == [None]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"texts": TEXTS, "ids": ["0" * 32] * 2},
        {"texts": ["alone"]},
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
def test_what_cannot_be_grouped_is_refused(client, fields):
    assert client.post("/v1/clusters", json=fields).status_code == 422


def test_kept_vectors_are_grouped_by_their_ids_without_texts(make_client, make_model, tmp_path):
    model = InBedder(make_model("bert"), cache=tmp_path / "kept", max_length=64)
    client = make_client({"kept": model})
    rows = client.post("/v1/embeddings", json={"input": TEXTS, "instruction": "@topic"}).json()["data"]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(TEXTS)
    (grouping,) = client.post("/v1/clusters", json={"ids": ids, "k": 2, "seed": 3}).json()["data"]
    assert grouping["labels"] == group(unit(model.encode(TEXTS, "@topic")), 2, 3).tolist()
    assert [len(words) > 0 for words in grouping["keywords"]] == [True, True]
    assert client.post("/v1/clusters", json={"ids": [*ids, "0" * 32]}).status_code == 422


def test_without_a_cache_vectors_have_no_ids(client):
    (row,) = client.post("/v1/embeddings", json={"input": "a"}).json()["data"]
    assert set(row) == {"object", "index", "embedding"}
