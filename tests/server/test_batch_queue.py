"""Batching across requests: shared passes, failures, cancelled requests."""

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
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import INSTRUCTIONS
from tests.server.conftest import ChangedBackbone


class Prompt:
    def __init__(self, length, value=0.0):
        self.ids, self.value = [0] * length, value


class SlowBackbone:
    """A backbone that returns each prompt's value when a test lets it, and records its passes."""

    model = None

    def __init__(self):
        self.passes, self.release = [], threading.Event()

    def embed(self, prompts, *settings):
        self.passes.append([(prompt.value, len(prompt.ids)) for prompt in prompts])
        assert self.release.wait(60)
        if any(prompt.value < 0 for prompt in prompts):
            raise ValueError("faulty")
        return torch.tensor([[prompt.value] for prompt in prompts])


@pytest.fixture
def queue():
    queue = BatchQueue(batch_size=4)
    yield queue
    queue.close()


def submit_all(queue, backbone, requests):
    """Submit requests while the model runs one prompt; return results or errors in the order of the requests."""
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
        backbone.release.set()
        assert first.result().tolist() == [[100.0]]
        return [future.exception() or future.result()[:, 0].tolist() for future in futures]


def test_waiting_requests_share_passes_and_keep_their_order(queue):
    backbone = SlowBackbone()
    requests = [(("a",), [Prompt(5, float(number)), Prompt(5, number + 0.5)]) for number in range(3)]
    assert submit_all(queue, backbone, requests) == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    assert [len(batch) for batch in backbone.passes] == [1, 4, 2]


def test_the_oldest_request_goes_first_with_others_of_its_length(queue):
    backbone = SlowBackbone()
    requests = [(("a",), [Prompt(length, float(length))]) for length in (10, 500, 400, 11, 12, 300, 13)]
    submit_all(queue, backbone, requests)
    lengths = [sorted(length for _, length in batch) for batch in backbone.passes]
    assert lengths == [[1], [10, 11, 12, 13], [300, 400, 500]]


def test_a_small_request_goes_before_large_ones_that_came_first(queue):
    backbone = SlowBackbone()
    requests = [(("a",), [Prompt(5, float(number))] * 4) for number in range(6)]
    submit_all(queue, backbone, [*requests, (("a",), [Prompt(5, 50.0)])])
    firsts = [batch[0][0] for batch in backbone.passes]
    assert firsts.index(50.0) <= 2
    assert [value for value in firsts if value < 50] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_large_request_goes_between_small_ones(queue):
    backbone = SlowBackbone()
    small = [((number,), [Prompt(5, float(number))]) for number in range(6)]
    submit_all(queue, backbone, [small[0], (("a",), [Prompt(5, 50.0)] * 4), *small[1:]])
    assert [batch[0][0] for batch in backbone.passes].index(50.0) <= 4


def test_a_waiting_request_leaves_its_thread_to_a_small_one(make_client, tiny):
    release, passes = threading.Event(), []
    release.set()

    def wait(vectors, prompts):
        passes.append([len(prompt.ids) for prompt in prompts])
        assert release.wait(60)
        return vectors

    model = tiny.from_pipeline(tiny.pipeline.wrap(lambda backbone: ChangedBackbone(backbone, wait)))
    client = make_client({"slow": model}, threads=1, batch_size=2)
    queue = client.app.state.models["slow"].queue
    passes.clear()
    release.clear()
    long, deadline = "cats and dogs and " * 5, time.monotonic() + 30
    with ThreadPoolExecutor(5) as pool:
        futures = []
        requests = [[f"{long}{number}{letter}" for letter in "abcdef"] for number in range(4)] + [["small"]]
        for texts, waiting in zip(requests, (0, 2, 4, 6, 7), strict=True):  # the first request is in its pass
            futures.append(pool.submit(client.post, "/v1/embeddings", json={"input": texts}))
            while (len(passes), len(queue)) != (1, waiting) and time.monotonic() < deadline:
                time.sleep(0.001)
        release.set()
        assert [future.result().status_code for future in futures] == [200] * 5
    small = min(min(lengths) for lengths in passes)
    assert [small in lengths for lengths in passes].index(True) <= 2
    assert len(passes) == 13


def test_a_pass_keeps_to_the_token_budget(queue):
    backbone = SlowBackbone()
    submit_all(queue, backbone, [(("a",), [Prompt(1000)]) for _ in range(3)])
    assert [len(batch) for batch in backbone.passes] == ([1, 2, 1] if not torch.cuda.is_available() else [1, 3])


def test_requests_with_other_settings_run_in_another_pass(queue):
    backbone = SlowBackbone()
    submit_all(queue, backbone, [(("a",), [Prompt(5)]), (("b",), [Prompt(5)]), (("a",), [Prompt(5)])])
    assert [len(batch) for batch in backbone.passes] == [1, 2, 1]


def test_only_the_faulty_request_fails(queue):
    results = submit_all(queue, SlowBackbone(), [(("a",), [Prompt(5, value)]) for value in (1.0, -1.0, 2.0)])
    assert (results[0], results[2]) == ([1.0], [2.0])
    assert isinstance(results[1], ValueError)


def test_a_cancelled_request_leaves_the_queue_and_is_not_computed(queue):
    backbone, ticket = SlowBackbone(), Ticket()

    def submit_with_ticket():
        TICKET.set(ticket)
        return queue.submit(backbone, "embed", ("a",), [Prompt(5, 7.0)])

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(1)])
        while not backbone.passes:
            time.sleep(0.001)
        cancelled = pool.submit(submit_with_ticket)
        while not len(queue):
            time.sleep(0.001)
        waiting = pool.submit(queue.submit, backbone, "embed", ("a",), [Prompt(5, 8.0)])
        while len(queue) < 2:
            time.sleep(0.001)
        ticket.cancel()
        with pytest.raises(CancelledError):
            cancelled.result(20)
        backbone.release.set()
        assert waiting.result(20).tolist() == [[8.0]]
        first.result(20)
    assert backbone.passes == [[(0.0, 1)], [(8.0, 5)]]


def test_a_closed_queue_fails_waiting_requests_and_refuses_others():
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
        backbone.release.set()
        first.result(20)
    with pytest.raises(QueueClosedError):
        queue.submit(backbone, "embed", ("a",), [Prompt(1)])


def test_many_clients_with_various_instructions_get_their_own_vectors(make_client, tiny):
    client = make_client(batch_size=16)
    cases = [([f"text {number}", "cats " * (number % 7)], INSTRUCTIONS[number % 4]) for number in range(60)]

    def embed(case):
        fields = {"input": case[0], "instruction": case[1], "normalized": False}
        return [row["embedding"] for row in client.post("/v1/embeddings", json=fields).json()["data"]]

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(embed, cases))
    for case, vectors in zip(cases, results, strict=True):
        np.testing.assert_allclose(vectors, tiny.encode(*case), atol=1e-4)
    counts = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert float(counts['inbedder_pass_prompts_count{model="tiny"}']) < 60


def test_requests_beyond_the_limit_get_429_and_retry_after(make_client, tiny):
    release, entered = threading.Event(), threading.Event()

    def wait(vectors, _):
        entered.set()
        assert release.wait(60)
        return vectors

    model = tiny.from_pipeline(tiny.pipeline.wrap(lambda backbone: ChangedBackbone(backbone, wait)))
    release.set()
    client = make_client({"slow": model}, max_waiting=2)
    release.clear()
    with ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(client.post, "/v1/embeddings", json={"input": "a"}) for _ in range(2)]
        model_service = client.app.state.models["slow"]
        while model_service.waiting < 2:
            time.sleep(0.001)
        refused = client.post("/v1/embeddings", json={"input": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        release.set()
        assert [future.result().status_code for future in accepted] == [200, 200]
    assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    assert model_service.waiting == 0


def test_a_client_that_disconnects_leaves_the_queue(make_live, tiny):
    release = threading.Event()
    release.set()
    computed = []

    def wait(vectors, prompts):
        assert release.wait(60)
        computed.append(len(prompts))
        return vectors

    model = tiny.from_pipeline(tiny.pipeline.wrap(lambda backbone: ChangedBackbone(backbone, wait)))
    address = make_live({"slow": model})
    computed.clear()
    release.clear()
    body = b'{"input": ["a", "b", "c"]}'
    head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"

    def count_in_progress():
        metrics = urllib.request.urlopen("http://{}:{}/metrics".format(*address)).read().decode()
        return float(re.search(r'in_progress{model="slow"} (\S+)|$', metrics)[1] or 0)

    first, second = (socket.create_connection(address) for _ in range(2))
    for number, connection in enumerate((first, second)):
        connection.sendall(head.encode() + body)
        while count_in_progress() <= number:
            time.sleep(0.01)
    second.close()
    while count_in_progress() == 2:
        time.sleep(0.01)
    release.set()
    assert first.recv(100).startswith(b"HTTP/1.1 200")
    first.close()
    assert computed == [3]


def test_a_vector_that_is_not_finite_fails_only_its_own_request(make_client, tiny):
    faulty_ids = tiny.tokenizer(["faulty"], ["What?"])[0].ids.tolist()

    def add_nan(vectors, prompts):
        for row, prompt in enumerate(prompts):
            if prompt.ids.tolist() == faulty_ids:
                vectors[row] = float("nan")
        return vectors

    model = tiny.from_pipeline(tiny.pipeline.wrap(lambda backbone: ChangedBackbone(backbone, add_nan)))
    client = make_client({"tiny": model})
    texts = ["a", "faulty", "b", "c"] * 4
    with ThreadPoolExecutor(8) as pool:
        responses = list(
            pool.map(lambda text: client.post("/v1/embeddings", json={"input": text, "instruction": "What?"}), texts)
        )
    assert [response.status_code for response in responses] == [500 if text == "faulty" else 200 for text in texts]
    np.testing.assert_allclose(
        responses[0].json()["data"][0]["embedding"], normalize_vectors(tiny.encode("a", "What?")), atol=1e-5
    )


def test_answers_of_equal_requests_are_sampled_in_one_pass(make_client, tiny):
    client = make_client()
    texts = [f"text {number}" for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        responses = pool.map(
            lambda text: client.post("/v1/answers", json={"input": text, "instruction": "@generic", "temperature": 1.0, "n": 2}),
            texts,
        )
    answers = [response.json()["data"][0]["answers"] for response in responses]
    assert answers == tiny.answer(texts, "@generic", n=2, temperature=1.0)
