"""Bodies of requests: their bounds, JSON that is not in order, surrogates."""

import json
import threading

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st

from inbedder import InBedder
from inbedder.server import request_body
from inbedder.server.request_body import MAX_FIELDS, BodyParser, parse_fields
from inbedder.server.schemas import (
    AnswersRequest,
    ClassifyRequest,
    ClustersRequest,
    CohereRequest,
    EmbeddingsRequest,
    RerankRequest,
)
from inbedder.server.settings import Settings
from inbedder.server.systemone_schemas import SystemOneRequest
from tests.server.test_middleware import BODIES

LISTS = [
    ("/v1/embeddings", EmbeddingsRequest, "input"),
    ("/v1/embeddings", EmbeddingsRequest, "instruction"),
    ("/v1/embeddings", EmbeddingsRequest, "prompt"),
    ("/v1/rerank", RerankRequest, "documents"),
    ("/v2/embed", CohereRequest, "texts"),
    ("/v2/embed", CohereRequest, "embedding_types"),
    ("/v2/embed", CohereRequest, "instruction"),
    ("/v1/answers", AnswersRequest, "input"),
    ("/v1/answers", AnswersRequest, "instruction"),
    ("/v1/clusters", ClustersRequest, "texts"),
    ("/v1/clusters", ClustersRequest, "ids"),
    ("/v1/clusters", ClustersRequest, "instructions"),
    ("/v1/classify", ClassifyRequest, "input"),
    ("/v1/classify", ClassifyRequest, "categories"),
]
"""Every list of every request."""
HEADERS = {"Content-Type": "application/json"}
SETTINGS = Settings(max_items=4, max_cluster_items=4, max_tokens=6)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
lists = st.lists(scalars | st.dictionaries(st.text(), scalars, max_size=3), max_size=4)
bodies = st.dictionaries(st.text(), scalars | lists, max_size=5)


def get_message(response, status=422):
    assert response.status_code == status, response.text
    return response.json()["error"]["message"]


def post(client, path, body):
    return client.post(path, content=body, headers=HEADERS)


def fill_list(path, field, item, count):
    """Return a valid body but for a list of ``count`` equal items that is never closed."""
    fields = {name: value for name, value in BODIES[path].items() if name != field}
    return (json.dumps({**fields, "model": "tiny"})[:-1] + f', "{field}": [' + ", ".join([item] * count)).encode()


@pytest.mark.parametrize("item", ["null", "true", "1.5", '"a"', "[]", "{}", '{"text": "a"}', "-1"])
def test_a_list_is_parsed_up_to_its_limit_and_no_further(client, item):
    for path, _, field in LISTS:
        assert get_message(post(client, path, fill_list(path, field, item, 2048)), 400) == "The body is not JSON."
        assert (
            get_message(post(client, path, fill_list(path, field, item, 2049) + b", ?")) == f"{field}: Send at most 2,048 items."
        )


@pytest.mark.parametrize("item", [None, True, 1.5, [None], {"a": 1}])
def test_only_the_first_error_of_a_list_is_collected(item):
    for path, schema, field in LISTS:
        body = json.dumps({**BODIES[path], field: [item] * 2000}).encode()
        with pytest.raises(RequestValidationError) as raised:
            parse_fields(body, schema, Settings())
        assert len(raised.value.errors()) <= 5, (path, field)


def test_token_ids_are_counted_before_they_are_parsed():
    for ids in ([1] * 6, [[1, 2, 3], [4, 5, 6]]):
        assert parse_fields(json.dumps({"input": ids}).encode(), EmbeddingsRequest, SETTINGS).input == ids
    for ids in ([1] * 7, [[1, 2, 3], [4, 5, 6], [7]]):
        with pytest.raises(RequestValidationError) as raised:
            parse_fields(json.dumps({"input": ids}).encode()[:-1], EmbeddingsRequest, SETTINGS)
        assert raised.value.errors()[0]["msg"] == "Send at most 6 token ids"


def test_nesting_fields_and_digits_are_bounded(client):
    deep = [b"[" * 4_000_000, b'{"input":' + b"[" * 4_000_000, b'{"a":' * 1_000_000, b'{"input":[[[1]]]}']
    for body in deep:
        assert "Nest lists and objects at most 3 deep" in get_message(post(client, "/v1/embeddings", body))
    for path in BODIES:
        depth = SystemOneRequest.max_depth if path == "/v1/systemone" else 3
        assert f"Nest lists and objects at most {depth} deep" in get_message(post(client, path, deep[1]))
    many_fields = b"{" + b",".join(b'"%d": 0' % number for number in range(MAX_FIELDS + 1))
    for body in (many_fields, b'{"input": [' + many_fields, b"{" + b'"user": "a",' * (MAX_FIELDS + 1)):
        assert "Send at most 64 fields" in get_message(post(client, "/v1/embeddings", body))
    for field, value in (("dimensions", "1" * 5000), ("input", "[" + "1" * 5000 + "]")):
        body = json.dumps({"input": "a"})[:-1] + f', "{field}": {value}}}'
        assert get_message(post(client, "/v1/embeddings", body)) == f"{field}: A number has too many digits. Send a shorter one."


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"input"',
        b'{"input":',
        b'{"input": "a"',
        b'{"input": "a",}',
        b'{"input": ["a",]}',
        b'{"input": [1 2]}',
        b'{"input": [1,,2]}',
        b'{"input": [01]}',
        b'{"input" "a"}',
        b"{input: 1}",
        b'{"input": "a"} {}',
        b'{"input": "a", "dimensions": NaN}',
        b'{"input": "a", "dimensions": -Infinity}',
        b'{"input": "\xff"}',
        b'{"input": "a\nb"}',
        b"nonsense",
        b" ",
    ],
)
def test_a_body_that_is_not_json_is_refused(client, body):
    assert get_message(post(client, "/v1/embeddings", body), 400) == "The body is not JSON."


def test_a_body_needs_the_content_type_of_json(client):
    body = b'{"input": "a"}'
    for content_type in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.a+json"):
        assert client.post("/v1/embeddings", content=body, headers={"Content-Type": content_type}).status_code == 200
    for content_type in ("text/plain", "text/json", "application/x-www-form-urlencoded", "", "json"):
        message = get_message(client.post("/v1/embeddings", content=body, headers={"Content-Type": content_type}))
        assert message == "body: Send JSON with the header Content-Type: application/json."
    assert get_message(client.post("/v1/embeddings")) == "The field body is missing."
    assert post(client, "/v1/embeddings", b"\xef\xbb\xbf" + body).status_code == 200


@given(bodies, st.sampled_from([None, 1]), st.booleans())
def test_the_parser_agrees_with_pythons(value, indent, ensure_ascii):
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
    assert BodyParser(text, Settings()).parse() == value


@given(st.text('{}[],:"\\ 01.e-ntua', max_size=12))
def test_the_parser_refuses_what_python_refuses(text):
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises((ValueError, RequestValidationError)):
            BodyParser(text, Settings()).parse()
    else:
        try:
            assert BodyParser(text, Settings()).parse() == expected
        except RequestValidationError as error:
            assert "at most 3 deep" in str(error.errors())


def test_long_bodies_are_parsed_in_a_thread(client, monkeypatch):
    threads = []

    def parse_and_record(*args):
        threads.append(threading.get_ident())
        return parse_fields(*args)

    monkeypatch.setattr(request_body, "parse_fields", parse_and_record)
    for text in ("a", "a" * 100_000):
        assert client.post("/v1/embeddings", json={"input": text}).status_code == 200
    assert len(set(threads)) == 2


def test_surrogates_in_any_field_are_replaced(make_client, make_model, tmp_path):
    client = make_client({"tiny": InBedder(make_model("bert"), cache=tmp_path / "cache", max_length=64)})

    def replace_strings(value):
        if isinstance(value, str):
            return "\ud800 lone \udfff"
        return [replace_strings(item) for item in value] if isinstance(value, list) else value

    for path, body in BODIES.items():
        for field in [*body, "model", "instruction", "instructions", "user", "\ud800"]:
            request = {**body, field: replace_strings(body.get(field, "a"))}
            response = post(client, path, json.dumps(request))
            assert response.status_code < 500, (path, field)
            assert "\\ud8" not in response.text
    ranking = post(
        client, "/v1/rerank", r'{"query": "a", "documents": ["\ud83d", "\ud83d\ude00"], "return_documents": true}'
    ).json()
    assert {result["document"]["text"] for result in ranking["results"]} == {"\ufffd", "\U0001f600"}
    body = r'{"texts": ["a", "b \udc00"], "k": 2, "instructions": ["\ud800 what?"]}'
    assert post(client, "/v1/clusters", body).json()["data"][0]["instruction"] == "\ufffd what?"
