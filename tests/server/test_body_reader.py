"""Bounds over the bodies of all requests, against real sockets."""

import json
import socket
import threading
import time

import pytest

from inbedder.server.body_reader import SMALL_BODY_BYTES

HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


def open_request(address, length, headers=""):
    connection = socket.create_connection(address, timeout=30)
    connection.sendall(f"{HEAD}{headers}Content-Length: {length}\r\n\r\n".encode())
    return connection


def read_status(connection):
    content = b""
    while part := connection.recv(65536):
        content += part
    return int(content.split()[1]), content.decode().lower()


def send_body(address, body):
    with open_request(address, len(body)) as connection:
        connection.sendall(body)
        return read_status(connection)


def make_body(size):
    body = json.dumps({"input": ["a"], "user": ""})
    return body.replace('""', f'"{"u" * (size - len(body))}"').encode()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_unfinished_bodies_are_bounded_together_and_release_their_bytes(make_live):
    address = make_live(max_total_body_bytes=1_000_000, max_body_bytes=600_000, body_timeout=60)
    long_body, small_body = make_body(500_000), make_body(SMALL_BODY_BYTES // 2)
    unfinished = []

    def is_refused_beside_one_more():
        unfinished.append(open_request(address, 600_000))
        unfinished[-1].sendall(b" " * 499_000)
        return send_body(address, long_body)[0] == 429

    wait_until(is_refused_beside_one_more)
    status, response = send_body(address, long_body)
    assert status == 429
    assert "retry-after: 1" in response
    assert '"rate_limit_error"' in response
    assert send_body(address, small_body)[0] == 200
    for connection in unfinished:
        connection.close()
    wait_until(lambda: send_body(address, long_body)[0] == 200)


def test_a_single_body_is_read_even_beyond_the_bound_of_all(make_live):
    address = make_live(max_total_body_bytes=1000)
    assert send_body(address, make_body(300_000))[0] == 200


@pytest.fixture
def blocked(change_vectors):
    """A model whose passes wait for an event once ``wait`` is set, and the two events."""
    wait, release = threading.Event(), threading.Event()

    def change(vectors, _):
        if wait.is_set():
            release.wait(60)
        return vectors

    yield change_vectors(change), wait, release
    release.set()


def test_a_full_queue_refuses_a_request_before_its_body_is_sent(make_live, blocked):
    model, wait, release = blocked
    address = make_live({"tiny": model}, max_waiting=1, body_timeout=60)
    wait.set()
    results = []
    client = threading.Thread(target=lambda: results.append(send_body(address, make_body(1000))))
    client.start()

    def refuses_at_once():
        with open_request(address, 1000, "Expect: 100-continue\r\n") as connection:
            connection.settimeout(1)
            try:
                return connection.recv(1000).startswith(b"HTTP/1.1 429 ")
            except TimeoutError:
                return False

    wait_until(refuses_at_once)
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_status(connection)[0] == 200
    release.set()
    client.join(60)
    assert results[0][0] == 200
    assert send_body(address, make_body(1000))[0] == 200
