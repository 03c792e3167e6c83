import asyncio

import pytest

from inbedder.server.answer_writer import PART_BYTES, TIMEOUT_BYTES, AnswerWriter, hold_answer_bytes
from inbedder.server.http_errors import RefusalError
from inbedder.server.settings import Settings


def send_all(writer, messages, send):
    async def run():
        for message in messages:
            await writer.send(message, send)

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
@pytest.mark.parametrize("more", [False, True])
def test_an_answer_arrives_whole_in_parts(size, more):
    start = {"type": "http.response.start", "status": 200, "headers": []}
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    parts = []

    async def send(message):
        parts.append(message)

    send_all(AnswerWriter(Settings()), [start, {"type": "http.response.body", "body": body, "more_body": more}], send)
    assert parts[0] == start
    assert b"".join(message["body"] for message in parts[1:]) == body
    assert all(len(message["body"]) <= PART_BYTES for message in parts[1:])
    assert [message["more_body"] for message in parts[1:]] == [True] * (len(parts) - 2) + [more]


def test_a_client_that_does_not_read_is_given_up():
    parts = []

    async def send(message):
        if parts:
            await asyncio.Event().wait()
        parts.append(message)

    with pytest.raises(RefusalError, match="does not read the answer"):
        send_all(
            AnswerWriter(Settings(answer_timeout=0.05)), [{"type": "http.response.body", "body": bytes(10 * PART_BYTES)}], send
        )
    assert len(parts) == 1


def test_a_client_that_reads_a_part_now_and_then_is_given_up():
    parts = []

    async def send(message):
        await asyncio.sleep(0.05)
        parts.append(message)

    body = bytes(4 * TIMEOUT_BYTES)
    with pytest.raises(RefusalError, match="does not read the answer"):
        send_all(AnswerWriter(Settings(answer_timeout=0.1)), [{"type": "http.response.body", "body": body}], send)
    assert 1 < len(parts) < len(body) / PART_BYTES / 2


def test_reserved_answers_are_bounded_together_and_released():
    writer = AnswerWriter(Settings(max_total_answer_bytes=1_000_000))
    with writer.open_space():
        hold_answer_bytes(700_000)
        with writer.open_space():
            hold_answer_bytes(60_000)  # a small one is built in any case
            with pytest.raises(RefusalError, match="Too many long answers") as refusal:
                hold_answer_bytes(400_000)
            assert refusal.value.status == 429
        hold_answer_bytes(900_000)  # instead of the first, not beside it
        assert writer.total_bytes == 900_000
    assert writer.total_bytes == 0
    with writer.open_space():
        hold_answer_bytes(2_000_000)  # alone, its own limit decides
    hold_answer_bytes(5_000_000)  # outside of a request


def test_spaces_of_requests_that_run_at_once_are_apart():
    writer = AnswerWriter(Settings())

    async def run(size):
        with writer.open_space():
            await asyncio.to_thread(hold_answer_bytes, size)
            await asyncio.sleep(0.01)
            return writer.total_bytes

    async def run_all():
        return await asyncio.gather(run(70_000), run(80_000))

    assert asyncio.run(run_all())[0] == 150_000
    assert writer.total_bytes == 0
