"""Responses of the routes, compared with the model's results."""

import base64
import json
from concurrent.futures import CancelledError

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.runtime.cancellation import CANCELLATION_CHECK
from inbedder.server import routes
from inbedder.server.routes import to_json
from inbedder.vectors.vectors import normalize_vectors

TEXTS = ["I love cats", "I love dogs", "The delivery was late"]
QUESTION = "What animals do they love?"


def read_vectors(response):
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], dtype=np.float32)


def embed(client, **fields):
    return client.post("/v1/embeddings", json={"input": TEXTS, **fields})


def test_vectors_are_those_of_the_model_in_the_order_of_the_input(client, tiny):
    response = embed(client, model="tiny", instruction=QUESTION)
    np.testing.assert_allclose(read_vectors(response), normalize_vectors(tiny.encode(TEXTS, QUESTION)), atol=1e-5)
    body = response.json()
    assert (body["object"], body["model"]) == ("list", "tiny")
    assert [(row["object"], row["index"]) for row in body["data"]] == [("embedding", i) for i in range(3)]
    tokens = sum(len(prompt.ids) for prompt in tiny.tokenizer(TEXTS, [QUESTION] * 3))
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_base64_holds_the_same_numbers(client):
    rows = embed(client, instruction=QUESTION, encoding_format="base64").json()["data"]
    decoded = np.stack([np.frombuffer(base64.b64decode(row["embedding"]), dtype="<f4") for row in rows])
    np.testing.assert_allclose(decoded, read_vectors(embed(client, instruction=QUESTION)), atol=1e-6)


def test_instruction_prompt_and_prompt_name_are_equivalent(client, tiny):
    instructions = [QUESTION, "@topic", "Was?"]
    expected = normalize_vectors(tiny.encode(TEXTS, instructions))
    np.testing.assert_allclose(read_vectors(embed(client, instruction=instructions)), expected, atol=1e-5)
    np.testing.assert_allclose(read_vectors(embed(client, prompt=instructions)), expected, atol=1e-5)
    for name in ("@topic", "topic"):
        vectors = read_vectors(client.post("/v1/embeddings", json={"input": TEXTS[1], "prompt_name": name}))
        np.testing.assert_allclose(vectors, expected[1:2], atol=1e-5)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/embeddings", {"input": ["a"] * 8}),
        ("/v2/embed", {"texts": ["a"] * 8, "input_type": "clustering", "embedding_types": ["float", "base64"]}),
        ("/v1/classify", {"input": ["a"] * 2, "categories": [{"name": "c" * 900, "description": "a"}, "b"], "top_n": 10**9}),
    ],
)
def test_an_answer_that_would_be_too_long_is_refused_before_the_work(make_client, monkeypatch, path, fields):
    assert make_client(max_answer_bytes=10_000).post(path, json=fields).status_code == 200
    client = make_client(max_answer_bytes=5_000)
    for method in ("embed_texts", "read_texts"):
        monkeypatch.setattr(f"inbedder.server.model_service.ServedModel.{method}", None)
    response = client.post(path, json=fields)
    assert response.status_code == 422
    assert "more than 5,000. Send fewer texts per request." in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/classify"])
def test_an_estimated_answer_is_at_least_as_long_as_the_answer(make_client, monkeypatch, path):
    sizes = []
    monkeypatch.setattr("inbedder.server.routes.check_answer_size", lambda _model, size: sizes.append(size))
    monkeypatch.setattr("inbedder.server.classify_route.check_answer_size", lambda _model, size: sizes.append(size))
    fields = {"input": TEXTS * 5, "instruction": QUESTION}
    fields |= {"categories": [f"na\u0001me {i}" for i in range(9)], "top_n": 9} if path == "/v1/classify" else {}
    answer = make_client().post(path, json=fields).content
    assert len(answer) * 0.9 <= sizes[0] <= len(answer) * 2


def test_building_an_answer_ends_when_the_client_disconnects():
    def end():
        raise CancelledError

    token = CANCELLATION_CHECK.set(end)
    with pytest.raises(CancelledError):
        to_json({"data": [{"index": 0}]})
    CANCELLATION_CHECK.reset(token)


def test_without_normalization_vectors_are_as_the_model_gives_them(client, tiny):
    np.testing.assert_allclose(
        read_vectors(embed(client, instruction=QUESTION, normalized=False)), tiny.encode(TEXTS, QUESTION), atol=1e-4
    )


def test_token_ids_are_decoded_to_texts(client, tiny):
    ids = [tiny.backbone.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    decoded = [tiny.backbone.tokenizer.decode(row) for row in ids]
    expected = read_vectors(client.post("/v1/embeddings", json={"input": decoded}))
    np.testing.assert_allclose(read_vectors(client.post("/v1/embeddings", json={"input": ids})), expected, atol=1e-5)
    np.testing.assert_allclose(read_vectors(client.post("/v1/embeddings", json={"input": ids[0]})), expected[:1], atol=1e-5)


def test_dimensions_cut_the_vectors(client, tiny):
    full = read_vectors(embed(client, instruction=QUESTION))
    np.testing.assert_allclose(read_vectors(embed(client, instruction=QUESTION, dimensions=32)), full, atol=1e-6)
    short = read_vectors(embed(client, instruction=QUESTION, dimensions=8))
    np.testing.assert_allclose(short, normalize_vectors(full[:, :8]), atol=1e-5)
    unscaled = read_vectors(embed(client, instruction=QUESTION, dimensions=8, normalized=False))
    np.testing.assert_allclose(unscaled, tiny.encode(TEXTS, QUESTION)[:, :8], atol=1e-4)
    cohere = {"texts": TEXTS, "input_type": "clustering", "instruction": QUESTION, "output_dimension": 8}
    body = client.post("/v2/embed", json=cohere).json()
    np.testing.assert_allclose(body["embeddings"]["float"], short, atol=1e-5)
    refused = embed(client, dimensions=33)
    assert refused.status_code == 400
    assert "This model's vectors have 32 dimensions" in refused.json()["error"]["message"]


def test_dimensions_of_a_model_with_a_second_one_are_all_or_refused(make_client, make_model):
    pair = make_client({"pair": InBedder(make_model("bert"), beside=make_model("roberta"))})
    assert embed(pair, instruction=QUESTION, dimensions=64).status_code == 200
    refused = embed(pair, instruction=QUESTION, dimensions=8)
    assert refused.status_code == 400
    assert "cannot be cut" in refused.json()["error"]["message"]


def test_a_served_model_with_short_vectors_has_no_longer_ones(make_client, make_model):
    short = make_client({"short": InBedder(make_model("bert"), truncate_dim=16)})
    assert read_vectors(embed(short)).shape == read_vectors(embed(short, dimensions=16)).shape == (3, 16)
    assert read_vectors(embed(short, dimensions=8)).shape == (3, 8)
    assert embed(short, dimensions=32).status_code == 400


def test_texts_that_are_too_long_are_cut_or_refused(client):
    long = "cats " * 200
    assert embed(client, input=[long]).status_code == embed(client, input=[long], truncate="END").status_code == 200
    assert embed(client, input=TEXTS, truncate="NONE").status_code == 200
    refused = embed(client, input=["short", long], truncate="NONE")
    assert refused.status_code == 422
    assert "number 1" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
        ("/v2/embed", {"texts": ["a"], "input_type": "clustering"}),
        ("/v1/answers", {"input": "a", "instruction": "What?"}),
        ("/v1/clusters", {"texts": ["a", "b"]}),
    ],
)
def test_unknown_fields_and_models_are_refused(client, route, fields):
    refused = client.post(route, json={**fields, "template": "{input}{instruction}"})
    assert refused.status_code == 422
    assert "'template'" in refused.json()["error"]["message"]
    assert client.post(route, json={**fields, "model": "gpt"}).status_code == 404
    assert client.post(route, json={**fields, "model": "tiny"}).status_code == 200
    missing = client.post(route, json={"model": "tiny"})
    assert missing.status_code == 422


@pytest.mark.parametrize(
    "fields",
    [
        {"instruction": "a", "prompt": "b"},
        {"instruction": "a", "prompt_name": "@topic"},
        {"instruction": ["a"]},
        {"instruction": "@nonsense"},
        {"prompt_name": "@nonsense"},
        {"prompt_name": "a question?"},
        {"truncate": "START"},
        {"encoding_format": "int8"},
        {"dimensions": 0},
        {"dimensions": "32"},
        {"normalized": 1},
        {"input": []},
        {"input": {"a": 1}},
        {"input": ["a", 1]},
        {"input": [True]},
        {"input": None},
    ],
)
def test_invalid_fields_are_refused(client, fields):
    assert embed(client, **fields).status_code == 422


def test_documents_are_ordered_by_similarity(client, tiny):
    body = {"query": "cats are loved", "documents": [*TEXTS[:2], {"text": TEXTS[2]}], "instruction": QUESTION}
    results = client.post("/v1/rerank", json=body).json()["results"]
    scores = tiny.similarity(tiny.encode(body["query"], QUESTION), tiny.encode(TEXTS, QUESTION))[0]
    assert [result["index"] for result in results] == np.argsort(-scores).tolist()
    np.testing.assert_allclose([result["relevance_score"] for result in results], np.sort(scores)[::-1], atol=1e-5)
    assert all("document" not in result for result in results)
    (best,) = client.post("/v1/rerank", json={**body, "top_n": 1, "return_documents": True}).json()["results"]
    assert best["document"] == {"text": TEXTS[best["index"]]}
    plain = client.post("/v1/rerank", json={"query": "cats", "documents": TEXTS}).json()["results"]
    scores = tiny.similarity(tiny.encode_query("cats"), tiny.encode_document(TEXTS))[0]
    np.testing.assert_allclose([result["relevance_score"] for result in plain], np.sort(scores)[::-1], atol=1e-5)


def test_coheres_input_types_select_the_query_or_document_prompt(make_client, make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding", template="instructor")
    client = make_client({"encoder": model})
    for input_type, encode in (("search_query", model.encode_query), ("search_document", model.encode_document)):
        fields = {"texts": TEXTS, "input_type": input_type, "embedding_types": ["float", "base64"]}
        body = client.post("/v2/embed", json=fields).json()
        np.testing.assert_allclose(body["embeddings"]["float"], normalize_vectors(encode(TEXTS)), atol=1e-5)
        assert len(body["embeddings"]["base64"]) == 3
        assert body["meta"]["billed_units"]["input_tokens"] > 0
    assert not np.allclose(model.encode_query(TEXTS), model.encode_document(TEXTS), atol=1e-3)
    for route, fields in (("/v2/embed", {"texts": TEXTS, "input_type": "search_query"}), ("/v1/embeddings", {"input": TEXTS})):
        body = client.post(route, json={**fields, "instruction": ""}).json()
        vectors = body["embeddings"]["float"] if route == "/v2/embed" else [row["embedding"] for row in body["data"]]
        np.testing.assert_allclose(vectors, normalize_vectors(model.encode(TEXTS, "")), atol=1e-5)
    body = client.post("/v2/embed", json={"texts": TEXTS, "input_type": "clustering", "instruction": QUESTION}).json()
    np.testing.assert_allclose(body["embeddings"]["float"], normalize_vectors(model.encode(TEXTS, QUESTION)), atol=1e-5)


def test_answers_are_those_of_the_model(client, tiny, make_client, make_model):
    body = client.post("/v1/answers", json={"input": TEXTS, "instruction": QUESTION}).json()
    assert [row["answers"] for row in body["data"]] == [[answer] for answer in tiny.answer(TEXTS, QUESTION)]
    sampled = client.post(
        "/v1/answers", json={"input": TEXTS[0], "instruction": QUESTION, "n": 3, "temperature": 1.0, "seed": 5}
    ).json()
    assert sampled["data"][0]["answers"] == tiny.answer([TEXTS[0]], QUESTION, n=3, temperature=1.0, seed=5)[0]
    hidden = client.post("/v1/answers", json={"input": TEXTS, "instruction": QUESTION, "min_confidence": 1}).json()
    assert [row["answers"] for row in hidden["data"]] == [[""]] * len(TEXTS)
    refused = client.post("/v1/answers", json={"input": "a"})
    assert refused.status_code == 422 and "@generic" in refused.text
    encoder = make_client({"encoder": InBedder(make_model("headless-bert"), backbone="embedding")})
    assert encoder.post("/v1/answers", json={"input": "a"}).status_code == 400
    for invalid in ({"n": 0}, {"n": 17}, {"temperature": -1}, {"top_p": 0}, {"seed": -1}, {"min_confidence": 2}):
        assert client.post("/v1/answers", json={"input": "a", **invalid}).status_code == 422


def test_vectors_come_with_answers_on_request(client, tiny, make_client, make_model):
    fields = {"input": TEXTS, "instruction": QUESTION}
    plain, both = (client.post("/v1/embeddings", json={**fields, **more}).json() for more in ({}, {"return_answers": True}))
    assert [row.pop("answer") for row in both["data"]] == tiny.answer(TEXTS, QUESTION)
    assert both["usage"] == plain["usage"]
    vectors, answered_vectors = ([row["embedding"] for row in body["data"]] for body in (plain, both))
    np.testing.assert_allclose(answered_vectors, vectors, atol=1e-5)
    refused = client.post("/v1/embeddings", json={"input": "a", "return_answers": True})
    assert refused.status_code == 422 and "@generic" in refused.text
    encoder = make_client({"encoder": InBedder(make_model("headless-bert"), backbone="embedding")})
    assert encoder.post("/v1/embeddings", json={**fields, "return_answers": True}).status_code == 400


def test_requests_select_a_model_by_name_and_the_first_is_the_default(make_client, tiny):
    client = make_client({"first": tiny, "second": tiny})
    models = client.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["first", "second"]
    assert models["data"][0]["dimension"] == 32
    assert client.get("/v1/models/second").json() == models["data"][1]
    assert embed(client).json()["model"] == "first"
    assert embed(client, model="second").json()["model"] == "second"


def test_a_models_name_may_contain_slashes(make_client, tiny):
    client = make_client({"org/tiny": tiny})
    for path in ("org/tiny", "org%2Ftiny"):
        assert client.get(f"/v1/models/{path}").json()["id"] == "org/tiny"
    for path in ("org", "tiny", "org/tiny/", "/org/tiny", "org/../org/tiny%2F"):
        refused = client.get(f"/v1/models/{path}")
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model")
        assert refused.json()["error"]["type"] == "not_found_error"


def test_metrics_count_requests_hits_and_tokens(make_client, make_model, tmp_path):
    client = make_client({"cached": InBedder(make_model("bert"), cache=tmp_path / "cache")})
    for _ in range(2):
        tokens = embed(client, instruction=QUESTION).json()["usage"]["total_tokens"]
    metrics = client.get("/metrics").text
    assert 'inbedder_requests_total{route="/v1/embeddings",status="200"} 2.0' in metrics
    assert 'inbedder_cache_hits_total{model="cached"} 3.0' in metrics
    assert f'inbedder_tokens_total{{model="cached"}} {2 * tokens}.0' in metrics
    for name in ("inbedder_request_seconds_bucket", "inbedder_queue_prompts", "inbedder_pass_prompts_count"):
        assert name in metrics


def test_tokenization_stops_when_there_are_too_many_tokens(make_client, tiny, monkeypatch):
    client, lengths, tokenize = make_client(max_tokens=1000), [], type(tiny.tokenizer).__call__

    def count_texts(tokenizer, texts, *args):
        lengths.append(len(texts))
        return tokenize(tokenizer, texts, *args)

    monkeypatch.setattr(type(tiny.tokenizer), "__call__", count_texts)
    refused = embed(client, input=[f"text {number} and more words" for number in range(1000)])
    assert refused.status_code == 422
    assert refused.json()["error"]["message"].startswith("More than 1,000 tokens in the first 128 texts.")
    assert lengths == [128]


def test_json_is_that_of_python():
    values = [{"a": [{"b": [0.1, 1e-9, -3], "ü": ["x", None, True]}, {}], "": {}}, [], [[], [[1]]], "a", 1.5, None]
    for value in values:
        assert json.loads(to_json(value)) == value
        assert to_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    rows = np.array([[0.5, 1e-9], [-3.0, 0.1]], np.float32)
    assert to_json({"a": list(rows)}) == to_json({"a": rows.tolist()})
    for value in (float("nan"), {"a": [[float("inf")]]}, [np.array([np.nan])]):
        with pytest.raises(ValueError):
            to_json(value)


def test_vectors_are_encoded_one_by_one(client, monkeypatch):
    sizes, dumps = [], json.dumps
    monkeypatch.setattr(routes.json, "dumps", lambda value, **options: sizes.append(len(dumps(value))) or dumps(value, **options))
    body = to_json({"data": [{"embedding": [0.25] * 100, "index": index} for index in range(50)]})
    assert max(sizes) <= 600 < len(body)
