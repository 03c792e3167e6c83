"""Bounds of the connection, against a real socket and before the API key."""

import json
import socket

import pytest

from inbedder.server.http_protocol import MAX_HEAD_BYTES, MAX_PIPELINED_REQUESTS

START = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "one header": (START + b"X-A: ", b"a" * 1000),
    "the name of a header": (START, b"a" * 1000),
    "many headers": (START, b"X-A: b\r\n" * 100),
    "many headers of one letter": (START, b"a:\r\n" * 100),
    "a URL": (b"GET /", b"a" * 1000),
    "an extension of a chunk": (CHUNKED + b"1;a=", b"a" * 1000),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"X-A: b\r\n" * 100),
}


@pytest.fixture(scope="module")
def address(make_live_module):
    return make_live_module(api_key="secret")


def read_response(connection):
    """Read to the end of the connection."""
    content = b""
    while part := connection.recv(65536):
        content += part
    return content


def split_response(content):
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@pytest.mark.parametrize("case", ENDLESS)
def test_a_head_that_is_too_long_gets_431_in_the_format_of_openai(address, case):
    start, part = ENDLESS[case]
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(start + part * (MAX_HEAD_BYTES // len(part) + 10))
        status, head, body = split_response(read_response(connection))
    assert status == 431
    assert "connection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == 431
    assert f"{MAX_HEAD_BYTES:,}" in error["message"]


def test_a_client_that_sends_a_header_without_end_is_disconnected(address):
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(START + b"X-A: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            while True:
                connection.sendall(b"a" * MAX_HEAD_BYTES)


def test_a_head_within_the_limit_reaches_the_key(address):
    headers = b"X-A: " + b"a" * (MAX_HEAD_BYTES - 500) + b"\r\nConnection: close\r\n\r\n"
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(START + headers)
        assert split_response(read_response(connection))[0] == 401


def test_the_count_starts_again_with_each_request(address):
    with socket.create_connection(address, timeout=20) as connection:
        for _ in range(5):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_body_in_many_chunks_is_read_whole(address):
    body = json.dumps({"input": ["a" * 50_000], "instruction": "What?"}).encode()
    chunks = b"".join(b"5;name=value\r\n%s\r\n" % body[start : start + 5] for start in range(0, len(body) // 5 * 5, 5))
    last = body[len(body) // 5 * 5 :]
    chunks += b"%x\r\n%s\r\n" % (len(last), last) if last else b""
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\n\r\n")
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(head + chunks + b"0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_trailers_do_not_become_headers(address):
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n")
    body = b'd\r\n{"input":"a"}\r\n0\r\nContent-Type: application/json\r\n\r\n'
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(head + body)
        assert split_response(read_response(connection))[0] == 422


def test_what_is_not_http_gets_400_in_the_format_of_openai(address):
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
        status, _, body = split_response(read_response(connection))
    assert (status, json.loads(body)["error"]["code"]) == (400, 400)


def test_too_many_pipelined_requests_end_the_connection(address, caplog):
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request * 10_000)
        answers = read_response(connection).count(b"HTTP/1.1 200 ")
    assert answers < 10_000
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request * MAX_PIPELINED_REQUESTS + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_response(connection).count(b"HTTP/1.1 200 ") == MAX_PIPELINED_REQUESTS + 1


def test_a_refused_client_that_still_sends_its_body_reads_the_response(address):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7000000\r\nConnection: close\r\n"
    for key, expected in ((b"wrong", 401), (b"secret", 422)):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(head + b"Authorization: Bearer " + key + b"\r\n\r\n" + b" " * 7_000_000)
            assert split_response(read_response(connection))[0] == expected
