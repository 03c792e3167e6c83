import asyncio

import pytest

from inbedder.server.answer_writer import PART_BYTES, AnswerWriter
from inbedder.server.body_reader import BodyReader
from inbedder.server.http_errors import RefusalError
from inbedder.server.settings import Settings


@pytest.fixture
def bodies():
    return BodyReader(Settings(), lambda: False)


def send_all(writer, messages, send):
    async def run():
        for message in messages:
            await writer.send(message, send)

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
@pytest.mark.parametrize("more", [False, True])
def test_an_answer_arrives_whole_in_parts(bodies, size, more):
    start = {"type": "http.response.start", "status": 200, "headers": []}
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    parts, counts = [], []

    async def send(message):
        parts.append(message)
        counts.append(bodies.total_bytes)

    send_all(AnswerWriter(bodies, 10), [start, {"type": "http.response.body", "body": body, "more_body": more}], send)
    assert parts[0] == start
    assert b"".join(message["body"] for message in parts[1:]) == body
    assert all(len(message["body"]) <= PART_BYTES for message in parts[1:])
    assert [message["more_body"] for message in parts[1:]] == [True] * (len(parts) - 2) + [more]
    assert set(counts[1:]) == {size if size > PART_BYTES else 0} and bodies.total_bytes == 0


def test_a_client_that_does_not_read_is_given_up(bodies):
    parts = []

    async def send(message):
        if parts:
            await asyncio.Event().wait()
        parts.append(message)

    with pytest.raises(RefusalError, match="does not read the answer"):
        send_all(AnswerWriter(bodies, 0.05), [{"type": "http.response.body", "body": bytes(10 * PART_BYTES)}], send)
    assert len(parts) == 1 and bodies.total_bytes == 0
