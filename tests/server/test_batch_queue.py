"""Batches across requests: what is put together, what fails alone, and who leaves."""

import re
import socket
import threading
import time
import urllib.request
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from inbedder.server.batch_queue import TICKET, BatchQueue, QueueClosedError, Ticket
from inbedder.vectors import unit
from tests.conftest import INSTRUCTIONS
from tests.server.conftest import FailingBackbone


class Prompt:
    def __init__(self, length, value=0.0):
        self.ids, self.value = [0] * length, value


class SlowBackbone:
    """Gives each prompt's value back, once it is let go; notes what came together."""

    def __init__(self):
        self.passes, self.go = [], threading.Event()

    def embed(self, prompts, *settings):
        self.passes.append([(prompt.value, len(prompt.ids)) for prompt in prompts])
        assert self.go.wait(60)
        if any(prompt.value < 0 for prompt in prompts):
            raise ValueError("poisoned")
        return torch.tensor([[prompt.value] for prompt in prompts])


@pytest.fixture
def queue():
    queue = BatchQueue(batch_size=4)
    yield queue
    queue.close()


def submit_all(queue, backbone, requests):
    """Submit while the model is busy with one prompt; results or errors in the order of the requests."""
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        first = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(1, 100.0)])
        while not backbone.passes:
            time.sleep(0.001)
        futures = []
        for settings, prompts in requests:
            before = len(queue)
            futures.append(pool.submit(queue.submit, backbone, "embed", settings, prompts))
            while len(queue) == before:
                time.sleep(0.001)
        backbone.go.set()
        assert first.result().tolist() == [[100.0]]
        return [future.exception() or future.result()[:, 0].tolist() for future in futures]


def test_what_waits_is_computed_together_and_comes_back_in_order(queue):
    backbone = SlowBackbone()
    requests = [(("a",), [Prompt(5, float(number)), Prompt(5, number + 0.5)]) for number in range(3)]
    assert submit_all(queue, backbone, requests) == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    assert [len(batch) for batch in backbone.passes] == [1, 4, 2]


def test_the_one_that_waits_longest_goes_first_and_those_of_its_length_with_it(queue):
    backbone = SlowBackbone()
    requests = [(("a",), [Prompt(length, float(length))]) for length in (10, 500, 400, 11, 12, 300, 13)]
    submit_all(queue, backbone, requests)
    lengths = [sorted(length for _, length in batch) for batch in backbone.passes]
    assert lengths == [[1], [10, 11, 12, 13], [300, 400, 500]]


def test_a_pass_keeps_to_the_token_budget(queue):
    backbone = SlowBackbone()
    submit_all(queue, backbone, [(("a",), [Prompt(2000)]) for _ in range(3)])
    assert [len(batch) for batch in backbone.passes] == ([1, 2, 1] if not torch.cuda.is_available() else [1, 3])


def test_other_settings_are_another_pass(queue):
    backbone = SlowBackbone()
    submit_all(queue, backbone, [(("a",), [Prompt(5)]), (("b",), [Prompt(5)]), (("a",), [Prompt(5)])])
    assert [len(batch) for batch in backbone.passes] == [1, 2, 1]


def test_a_poisoned_request_fails_alone(queue):
    found = submit_all(queue, SlowBackbone(), [(("a",), [Prompt(5, value)]) for value in (1.0, -1.0, 2.0)])
    assert (found[0], found[2]) == ([1.0], [2.0])
    assert isinstance(found[1], ValueError)


def test_who_is_cancelled_leaves_the_queue_and_is_not_computed(queue):
    backbone, ticket = SlowBackbone(), Ticket()

    def cancelled():
        TICKET.set(ticket)
        return queue.submit(backbone, "embed", ("a",), [Prompt(5, 7.0)])

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(1)])
        while not backbone.passes:
            time.sleep(0.001)
        gone = pool.submit(cancelled)
        while not len(queue):
            time.sleep(0.001)
        stays = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(5, 8.0)])
        while len(queue) < 2:
            time.sleep(0.001)
        ticket.cancel()
        with pytest.raises(CancelledError):
            gone.result(20)
        backbone.go.set()
        assert stays.result(20).tolist() == [[8.0]]
        first.result(20)
    assert backbone.passes == [[(0.0, 1)], [(8.0, 5)]]


def test_a_closed_queue_fails_what_waits_and_takes_nothing():
    queue, backbone = BatchQueue(), SlowBackbone()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(1)])
        while not backbone.passes:
            time.sleep(0.001)
        second = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(1)])
        while not len(queue):
            time.sleep(0.001)
        queue.close(timeout=0)
        with pytest.raises(QueueClosedError):
            second.result(20)
        backbone.go.set()
        first.result(20)
    with pytest.raises(QueueClosedError):
        queue.submit(backbone, "embed", ("a",), [Prompt(1)])


def test_many_clients_with_any_instructions_get_their_own_vectors(make_client, tiny):
    client = make_client(batch_size=16)
    asked = [([f"text {number}", "cats " * (number % 7)], INSTRUCTIONS[number % 4]) for number in range(60)]

    def embed(case):
        fields = {"input": case[0], "instruction": case[1], "normalized": False}
        return [row["embedding"] for row in client.post("/v1/embeddings", json=fields).json()["data"]]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(embed, asked))
    for case, vectors in zip(asked, found, strict=True):
        np.testing.assert_allclose(vectors, tiny.encode(*case), atol=1e-4)
    counts = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert float(counts['inbedder_pass_prompts_count{model="tiny"}']) < 60


def test_beyond_the_bound_requests_are_told_to_try_again(make_client, tiny):
    go, entered = threading.Event(), threading.Event()

    def wait(vectors, _):
        entered.set()
        assert go.wait(60)
        return vectors

    model = tiny.with_parts(tiny.parts.wrap(lambda backbone: FailingBackbone(backbone, wait)))
    go.set()
    client = make_client({"slow": model}, max_waiting=2)
    go.clear()
    with ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(client.post, "/v1/embeddings", json={"input": "a"}) for _ in range(2)]
        served = client.app.state.models["slow"]
        while served.waiting < 2:
            time.sleep(0.001)
        refused = client.post("/v1/embeddings", json={"input": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        go.set()
        assert [future.result().status_code for future in accepted] == [200, 200]
    assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    assert served.waiting == 0


def test_a_client_that_goes_leaves_the_queue(make_live, tiny):
    go = threading.Event()
    go.set()
    computed = []

    def wait(vectors, prompts):
        assert go.wait(60)
        computed.append(len(prompts))
        return vectors

    model = tiny.with_parts(tiny.parts.wrap(lambda backbone: FailingBackbone(backbone, wait)))
    address = make_live({"slow": model})
    computed.clear()
    go.clear()
    body = b'{"input": ["a", "b", "c"]}'
    head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"

    def in_progress():
        told = urllib.request.urlopen("http://{}:{}/metrics".format(*address)).read().decode()
        return float(re.search(r'in_progress{model="slow"} (\S+)|$', told)[1] or 0)

    first, second = (socket.create_connection(address) for _ in range(2))
    for number, connection in enumerate((first, second)):
        connection.sendall(head.encode() + body)
        while in_progress() <= number:
            time.sleep(0.01)
    second.close()
    while in_progress() == 2:
        time.sleep(0.01)
    go.set()
    assert first.recv(100).startswith(b"HTTP/1.1 200")
    first.close()
    assert computed == [3]


def test_an_item_without_a_finite_vector_fails_its_own_request_alone(make_client, tiny):
    poisoned = tiny.tokenizer(["poison"], ["What?"])[0].ids.tolist()

    def spoil(vectors, prompts):
        for row, prompt in enumerate(prompts):
            if prompt.ids.tolist() == poisoned:
                vectors[row] = float("nan")
        return vectors

    model = tiny.with_parts(tiny.parts.wrap(lambda backbone: FailingBackbone(backbone, spoil)))
    client = make_client({"tiny": model})
    texts = ["a", "poison", "b", "c"] * 4
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda text: client.post("/v1/embeddings", json={"input": text, "instruction": "What?"}), texts))
    assert [response.status_code for response in sent] == [500 if text == "poison" else 200 for text in texts]
    np.testing.assert_allclose(sent[0].json()["data"][0]["embedding"], unit(tiny.encode("a", "What?")), atol=1e-5)


def test_answers_of_requests_that_ask_alike_are_drawn_together(make_client, tiny):
    client = make_client()
    texts = [f"text {number}" for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        sent = pool.map(
            lambda text: client.post("/v1/answers", json={"input": text, "instruction": "@generic", "temperature": 1.0, "n": 2}),
            texts,
        )
    found = [response.json()["data"][0]["answers"] for response in sent]
    assert found == tiny.answer(texts, "@generic", n=2, temperature=1.0)
