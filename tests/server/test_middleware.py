"""Limits and security of every route."""

import json
import logging
import socket
import time

import pytest
from starlette.routing import Mount
from starlette.testclient import TestClient

from inbedder.server.app import make_app
from inbedder.server.settings import Settings
from tests.server.conftest import URL

KEY = "k3y-of-the-Server"
VALID_HEADERS = {"Authorization": f"Bearer {KEY}"}
CANARY = "canary7261"
BODIES = {
    "/v1/embeddings": {"input": ["a", "b"]},
    "/v1/rerank": {"query": "a", "documents": ["b", "c"]},
    "/v2/embed": {"texts": ["a", "b"], "input_type": "clustering"},
    "/v1/answers": {"input": ["a", "b"], "instruction": "What?"},
    "/v1/clusters": {"texts": ["a", "b"], "k": 2},
    "/v1/classify": {"input": ["a", "b"], "instruction": "What?", "categories": ["c", "d"]},
    "/v1/systemone": {"state": "a", "questions": {"q": {"type": "open", "instructions": "What?", "samples": 1}}},
}
"""A valid body of each POST route."""
ANSWER_ROUTES = ("/v1/answers", "/v1/systemone")
"""Routes whose valid body asks for answers only, without vectors."""
TEXT_FIELDS = {
    "/v1/embeddings": "input",
    "/v1/rerank": "documents",
    "/v2/embed": "texts",
    "/v1/answers": "input",
    "/v1/clusters": "texts",
    "/v1/classify": "input",
    "/v1/systemone": "state",
}


def list_paths(routes, prefix=""):
    for route in routes:
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if isinstance(route, Mount):
            yield prefix + route.path + "/swagger-ui.css"
        elif inner:
            yield from list_paths(inner, prefix)
        else:
            yield (prefix + route.path).replace("{model:path}", "{model}")


def list_routes(app):
    """List paths and methods of all routes, and of one that does not exist."""
    paths = sorted({*list_paths(app.routes), *app.openapi()["paths"]})
    assert set(BODIES) | {"/health", "/ready", "/metrics", "/docs", "/openapi.json", "/v1/models"} <= set(paths)
    paths = [path.replace("{model}", next(iter(app.state.models))) for path in [*paths, "/none"]]
    return [(path, "POST" if path in BODIES else "GET") for path in paths]


def list_posts(app):
    """List the POST routes with valid bodies; BODIES must contain every one."""
    paths = [path for path, methods in app.openapi()["paths"].items() if "post" in methods]
    assert set(paths) == set(BODIES)
    return BODIES.items()


def send(client, path, **options):
    return client.request("POST" if path in BODIES else "GET", path, json=BODIES.get(path), **options)


def with_instruction(path, body, instruction):
    if path == "/v1/systemone":
        return {**body, "questions": {"q": {**body["questions"]["q"], "instructions": instruction}}}
    return {**body, "instructions": [instruction]} if path == "/v1/clusters" else {**body, "instruction": instruction}


INVALID_HEADERS = {
    "none": {},
    "empty": {"Authorization": ""},
    "a scheme alone": {"Authorization": "Bearer"},
    "an empty key": {"Authorization": "Bearer "},
    "no scheme": {"Authorization": KEY},
    "another scheme": {"Authorization": f"Basic {KEY}"},
    "the key in another case": {"Authorization": f"Bearer {KEY.lower()}"},
    "a part of the key": {"Authorization": f"Bearer {KEY[:-1]}"},
    "more than the key": {"Authorization": f"Bearer {KEY}x"},
    "another key": {"Authorization": "Bearer other"},
    "bytes that are no ASCII": {"Authorization": b"Bearer \xff\xfe"},
    "another header": {"X-API-Key": KEY},
}


@pytest.mark.parametrize("case", INVALID_HEADERS)
def test_every_route_but_health_and_ready_requires_the_key(make_client, case):
    client = make_client(api_key=KEY)
    for path, method in list_routes(client.app):
        for verb in {method, "GET", "OPTIONS", "HEAD"}:
            status = client.request(verb, path, headers=INVALID_HEADERS[case]).status_code
            assert (status != 401) if path in ("/health", "/ready") else (status == 401), (path, verb, status)
    assert client.get("/health", headers=INVALID_HEADERS[case]).status_code == 200
    assert client.get("/health/", headers=INVALID_HEADERS[case]).status_code == 401


def test_with_the_key_every_route_answers(make_client):
    client = make_client(api_key=KEY, headers=VALID_HEADERS)
    for path, _ in list_routes(client.app):
        assert send(client, path).status_code == (404 if path == "/none" else 200), path


def test_a_key_sent_twice_is_refused(make_client):
    client = make_client(api_key=KEY)
    headers = [("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer other")]
    assert client.get("/v1/models", headers=headers).status_code == 401


def test_without_a_key_only_localhost_is_answered_not_web_pages(client):
    for path, method in list_routes(client.app):
        for host in ("example.org", "127.0.0.1.example.org", "example.org:8765", ""):
            assert client.request(method, path, headers={"Host": host}).status_code == 421, (path, host)
        for host in ("localhost:8765", "127.0.0.1", "[::1]:8765", "[::1]"):
            assert send(client, path, headers={"Host": host}).status_code in (200, 404), (path, host)
    for path, body in list_posts(client.app):
        response = client.post(path, content=str(body), headers={"Content-Type": "text/plain"})
        assert response.status_code == 422, path


def test_a_body_that_is_too_long_is_refused_with_or_without_its_length(make_client):
    client = make_client(max_body_bytes=1000)
    for path, method in list_routes(client.app):
        assert client.request(method, path, content=b"x" * 1001).status_code == 413, path
        assert client.request(method, path, content=iter([b"x" * 600] * 2)).status_code == 413, path
    for path, body in list_posts(client.app):
        assert client.post(path, json=body).status_code == 200


def test_items_characters_tokens_and_instructions_are_limited(make_client):
    default_client = make_client()
    few_items, short_texts = (
        make_client(max_items=2, max_cluster_items=2),
        make_client(max_characters=5, max_instruction_characters=10),
    )
    for path, body in list_posts(default_client.app):
        field = TEXT_FIELDS[path]
        three, long = {**body, field: ["a", "b", "c"]}, {**body, field: ["a", "b" * 6]}
        assert default_client.post(path, json=three).status_code == default_client.post(path, json=long).status_code == 200
        assert few_items.post(path, json=body).status_code == short_texts.post(path, json=body).status_code == 200
        for client, invalid in ((few_items, three), (few_items, {**body, field: []}), (short_texts, long)):
            assert client.post(path, json=invalid).status_code == 422, path
        assert default_client.post(path, json=with_instruction(path, body, "What is it?")).status_code == 200
        assert short_texts.post(path, json=with_instruction(path, body, "What is it?")).status_code == 422
        assert default_client.post(path, json=with_instruction(path, body, "What is it " * 100)).status_code == 422, path
    few_tokens = make_client(max_tokens=10)
    for path, body in list_posts(few_tokens.app):
        refused = few_tokens.post(path, json={**body, TEXT_FIELDS[path]: ["a b c d e f g h"] * 2})
        assert refused.status_code == 422, path
    assert few_items.post("/v1/clusters", json={"texts": ["a", "b"], "instructions": ["a"] * 9}).status_code == 422


@pytest.mark.parametrize("ids", [[-1], [10**6], [2**70], [[1, 2], [10**6]], [1, "a"], [1.5], [True]])
def test_token_ids_outside_the_vocabulary_are_refused(client, ids):
    assert client.post("/v1/embeddings", json={"input": ids}).status_code == 422


def test_incomplete_bodies_time_out(make_live):
    address = make_live(body_timeout=0.3)
    for path in [*BODIES, "/none"]:
        with socket.create_connection(address, timeout=20) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head.encode() + b'{"input"')
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 "), path


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_is_a_server_error(make_client, change_vectors, number):
    unchanged = make_client()
    factor = [1.0]
    client = make_client({"broken": change_vectors(lambda vectors, _: vectors * factor[0])})
    factor[0] = number
    for path, body in list_posts(client.app):
        assert unchanged.post(path, json=body).status_code == 200
        response = client.post(path, json=body)
        assert response.status_code == (200 if path in ANSWER_ROUTES else 500), path
        assert response.status_code == 200 or response.json()["error"]["type"] == "server_error"


def test_an_unexpected_error_is_a_500_without_details(make_client, change_vectors, caplog):
    def raise_error(vectors, prompts):
        if is_failing:
            raise ValueError(f"/etc/passwd {CANARY}")
        return vectors

    is_failing = []
    client = make_client({"broken": change_vectors(raise_error)})
    is_failing.append(True)
    for path, body in list_posts(client.app):
        if path not in ANSWER_ROUTES:
            response = client.post(path, json=body)
            assert response.status_code == 500, path
            assert CANARY not in response.text
            assert "passwd" not in response.text
    assert "ValueError" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    "field", ["template", "revision", "pooling", "layer", "backbone", "trust_remote_code", "cache", "device"]
)
def test_no_request_sets_an_option_of_the_model(client, field):
    for path, body in list_posts(client.app):
        assert client.post(path, json={**body, field: "x"}).status_code == 422


def test_a_model_is_a_name_and_an_instruction_is_text(client, tiny):
    for path, body in list_posts(client.app):
        for name in ("/etc", "../tiny", tiny.name, "tiny@main", ""):
            assert client.post(path, json={**body, "model": name}).status_code == 404, (path, name)
    for instruction in ("{input} {instruction}", "@../templates", "alpaca", "### Response:", "[MASK] [SEP]"):
        body = {"input": ["a"], "instruction": instruction, "normalized": False}
        (row,) = client.post("/v1/embeddings", json=body).json()["data"]
        assert row["embedding"] == pytest.approx(tiny.encode("a", instruction).tolist(), abs=1e-4)


def test_neither_errors_nor_logs_contain_inputs(make_client, tiny, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    key = f"key-{CANARY}"
    client = make_client({"tiny": tiny}, api_key=key, headers={"Authorization": f"Bearer {key}"}, max_characters=500)
    responses = []
    for path, body in list_posts(client.app):
        field = TEXT_FIELDS[path]
        for texts in (
            [CANARY, f"/home/{CANARY}"],
            [CANARY * 100, "b"],
            [CANARY, 1],
            CANARY * 100,
            {CANARY: 1},
            [f"{CANARY}\ud800"],
        ):
            request = with_instruction(path, {**body, field: texts}, f"What is {CANARY}?")
            responses.append(client.post(path, content=as_bytes(request), headers={"Content-Type": "application/json"}))
        for name in ("user", "model", "truncate", "k", "n"):
            responses.append(client.post(path, json={**body, name: CANARY}))
        responses.append(client.post(path, json=with_instruction(path, body, f"@{CANARY}")))
        responses.append(client.post(path, json=with_instruction(path, body, CANARY * 1000)))
        responses.append(client.post(path, content=f'{{"{CANARY}'.encode(), headers={"Content-Type": "application/json"}))
        responses.append(client.post(f"{path}?input={CANARY}", json=body))
    responses += [client.get(f"/{CANARY}"), client.get(f"/docs/assets/{CANARY}"), client.put(f"/v1/{CANARY}")]
    responses.append(client.get("/v1/models", headers={"Authorization": f"Bearer x{CANARY}"}))
    assert {401, 404, 422, 400} <= {response.status_code for response in responses}
    for response in responses:
        assert response.status_code < 500
        content = response.text + str(response.headers)
        assert response.status_code == 200 or CANARY not in content, (response.request.url.path, response.text)
    streams = capfd.readouterr()
    records = [
        record for record in caplog.records if record.name.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2")
    ]
    assert any(record.name == "inbedder.server.middleware" for record in records)
    messages = [record.getMessage() + str(record.exc_info) for record in records]
    assert not [message for message in messages if CANARY in message]
    assert CANARY not in streams.out + streams.err
    assert CANARY not in client.get("/metrics").text


def as_bytes(value):
    return json.dumps(value).encode()


def test_a_server_that_shuts_down_accepts_no_requests(tiny):
    app = make_app({"tiny": tiny}, Settings())
    with TestClient(app, base_url=URL) as client:
        assert client.get("/ready").status_code == 200
        app.state.models["tiny"].close()
        for path, body in list_posts(app):
            response = client.post(path, json=body)
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_the_log_holds_route_status_and_milliseconds_only(client, caplog):
    caplog.set_level(logging.INFO, logger="inbedder.server.middleware")
    start = time.perf_counter()
    client.get("/health")
    route, status, milliseconds, unit = caplog.records[-1].getMessage().split()
    assert (route, status, unit) == ("/health", "200", "ms")
    assert float(milliseconds) <= 1000 * (time.perf_counter() - start) + 0.1
