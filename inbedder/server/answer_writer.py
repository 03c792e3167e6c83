"""Sending of answers in parts, of which a client that does not read holds up one only, and only for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Send

from inbedder.server.body_reader import BodyReader
from inbedder.server.http_errors import CLIENT_CLOSED_REQUEST, RefusalError

PART_BYTES = 65_536
"""Maximum size of a part, as large as what the server hands to the system before it waits for the client."""


class AnswerWriter:
    """The answers of all requests of a server."""

    def __init__(self, bodies: BodyReader, seconds: float) -> None:
        """Start without answers.

        Args:
            bodies: The bodies of the server, with which the bytes of answers are counted.
            seconds: Maximum time for a client to read a part.
        """
        self._bodies, self._seconds = bodies, seconds

    async def send(self, message: Message, send: Send) -> None:
        """Send a message, and the body of an answer part by part.

        Args:
            message: A message of ASGI.
            send: Sends a message; it waits while the client has not read the earlier ones.

        Raises:
            RefusalError: When the client does not read a part in time. The answer then ends early, and so does the connection.
        """
        body = message.get("body", b"")
        if len(body) <= PART_BYTES:
            await send(message)
            return
        with self._count(len(body)):
            for start in range(0, len(body), PART_BYTES):
                has_more = message.get("more_body", False) or start + PART_BYTES < len(body)
                part = {**message, "body": body[start : start + PART_BYTES], "more_body": has_more}
                try:
                    await asyncio.wait_for(send(part), self._seconds)
                except asyncio.TimeoutError:
                    raise RefusalError(CLIENT_CLOSED_REQUEST, "The client does not read the answer.", close=True) from None

    @contextmanager
    def _count(self, count: int) -> Iterator[None]:
        self._bodies.total_bytes += count
        try:
            yield
        finally:
            self._bodies.total_bytes -= count
