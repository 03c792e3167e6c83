"""Groups over HTTP, of texts and of cached vectors."""

import asyncio

import pytest
import sklearn.cluster
from starlette.requests import Request

from inbedder import InBedder, cluster
from inbedder.grouping.partition.partition import group
from inbedder.server.batch_queue import TICKET
from inbedder.server.cluster_route import _build_groupings
from inbedder.server.http_errors import RefusalError
from inbedder.server.routes import _answer_texts
from inbedder.server.schemas import AnswersRequest, ClustersRequest
from inbedder.vectors.vectors import normalize_vectors

TEXTS = ["I love cats", "I love dogs", "The delivery was late", "It came late", "cats and dogs", "late again"]
QUESTIONS = ["What animals do they love?", "@topic"]


def test_there_is_one_grouping_per_instruction_equal_to_the_librarys(client, tiny):
    body = client.post("/v1/clusters", json={"texts": TEXTS, "instructions": QUESTIONS, "k": 2, "seed": 3}).json()
    assert [grouping["instruction"] for grouping in body["data"]] == QUESTIONS
    for question, grouping in zip(QUESTIONS, body["data"], strict=True):
        expected = cluster(TEXTS, question, tiny, 2, 3)
        assert grouping["labels"] == expected.labels.tolist()
        assert (grouping["names"], grouping["keywords"]) == (expected.names, expected.keywords)
    options = {"method": "agglomerative", "namer": "words", "apart_from": "Is it late?", "k": 3, "seed": 1}
    (grouping,) = client.post("/v1/clusters", json={"texts": TEXTS, "instructions": QUESTIONS[:1], **options}).json()["data"]
    expected = cluster(TEXTS, QUESTIONS[0], tiny, **options)
    assert (grouping["labels"], grouping["names"]) == (expected.labels.tolist(), expected.names)
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
        {"ids": ["0" * 32] * 2, "no_answer": True},
        {"texts": TEXTS, "namer": "model:other"},
        {"texts": TEXTS, "method": "hdbscan", "k": 2},
        {"texts": TEXTS, "min_size": 3},
        {"texts": TEXTS, "apart_from": "x" * 1_000_000},
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


@pytest.mark.parametrize("option", [{"subtract_instruction": True}, {"truncate_dim": 8}])
def test_ids_are_refused_if_the_cached_vectors_are_not_those_of_the_model(make_client, make_model, tmp_path, option):
    client = make_client({"changed": InBedder(make_model("bert"), cache=tmp_path, **option)})
    refused = client.post("/v1/clusters", json={"ids": ["0" * 32, "1" * 32]})
    assert refused.status_code == 422
    assert f"Ids stand for vectors before {next(iter(option))}" in refused.json()["error"]["message"]


def test_without_a_cache_vectors_have_no_ids(client):
    (row,) = client.post("/v1/embeddings", json={"input": "a"}).json()["data"]
    assert set(row) == {"object", "index", "embedding"}


def run_for_nobody(client, function, fields):
    """Run a request whose client disconnects while it is computed; the work must end."""

    async def receive():
        await asyncio.sleep(3600)

    service = client.app.state.models["tiny"]
    with pytest.raises(RefusalError) as raised:
        asyncio.run(service.run(Request({"type": "http"}, receive), function, fields))
    assert raised.value.status == 499
    assert service.waiting == 0


@pytest.mark.parametrize("fits", [1, 3, 20, 24])
def test_k_means_ends_when_the_client_disconnects(client, monkeypatch, fits):
    calls, fit_predict = [], sklearn.cluster.KMeans.fit_predict

    def fit_and_disconnect(model, vectors):
        calls.append(len(vectors))
        if len(calls) == fits:
            TICKET.get().cancel()
        return fit_predict(model, vectors)

    monkeypatch.setattr(sklearn.cluster.KMeans, "fit_predict", fit_and_disconnect)
    texts = [f"{word} {number}" for word in ("cats", "dogs", "late", "delivery") for number in range(15)]
    run_for_nobody(client, _build_groupings, ClustersRequest(texts=texts, instructions=QUESTIONS))
    assert len(calls) == fits


def test_answers_end_when_the_client_disconnects(make_client, tiny, monkeypatch):
    client, tickets, passes, answer = make_client(batch_size=2), [], [], type(tiny.backbone).answer

    def answer_and_disconnect(backbone, prompts, *settings):
        passes.append(len(prompts))
        tickets[0].cancel()
        return answer(backbone, prompts, *settings)

    def answer_texts(*args):
        tickets.append(TICKET.get())
        return _answer_texts(*args)

    monkeypatch.setattr(type(tiny.backbone), "answer", answer_and_disconnect)
    run_for_nobody(client, answer_texts, AnswersRequest(input=TEXTS, instruction="What?"))
    assert passes == [2]
