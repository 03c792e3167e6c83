"""Sending of answers in parts, within bounds of memory over all requests, and of time for each client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import Message, Send

from inbedder.server.http_errors import CLIENT_CLOSED_REQUEST, RefusalError
from inbedder.server.settings import Settings

PART_BYTES = 65_536
"""Maximum size of a part, as large as what the server hands to the system before it waits for the client. Answers of one part are
built even while larger ones fill ``max_total_answer_bytes``."""
TIMEOUT_BYTES = 1_000_000
"""Number of bytes of an answer that a client must read within ``answer_timeout``."""


@dataclass
class AnswerSpace:
    """What the answer of one request takes of the memory for answers."""

    writer: AnswerWriter
    held_bytes: int = 0


class AnswerWriter:
    """The answers of all requests of a server."""

    def __init__(self, settings: Settings) -> None:
        """Start without answers."""
        self.total_bytes = 0
        """Number of bytes of all answers that are built, or not yet read."""
        self._settings = settings
        self._lock = threading.Lock()

    @contextmanager
    def open_space(self) -> Iterator[None]:
        """Count what a request reserves for its answer until the request ends."""
        space = AnswerSpace(self)
        token = SPACE.set(space)
        try:
            yield
        finally:
            SPACE.reset(token)
            with self._lock:
                self.total_bytes -= space.held_bytes

    def hold(self, space: AnswerSpace, size: int) -> None:
        """Reserve about ``size`` bytes for an answer before it is built; reject it if others leave too little memory."""
        with self._lock:
            other_bytes = self.total_bytes - space.held_bytes
            if other_bytes and size > PART_BYTES and other_bytes + size > self._settings.max_total_answer_bytes:
                raise RefusalError(429, "Too many long answers at a time. Try again later.", retry_after=1)
            self.total_bytes, space.held_bytes = other_bytes + size, size

    async def send(self, message: Message, send: Send) -> None:
        """Send a message, a body part by part; end the connection early if the client does not read it in time."""
        body = message.get("body", b"")
        if len(body) <= PART_BYTES:
            await send(message)
            return
        first_moment = time.monotonic()
        for start in range(0, len(body), PART_BYTES):
            end = start + PART_BYTES
            part = {**message, "body": body[start:end], "more_body": message.get("more_body", False) or end < len(body)}
            deadline = first_moment + self._settings.answer_timeout * (1 + end / TIMEOUT_BYTES)
            try:
                await asyncio.wait_for(send(part), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise RefusalError(CLIENT_CLOSED_REQUEST, "The client does not read the answer.", close=True) from None


SPACE: ContextVar[AnswerSpace | None] = ContextVar("space", default=None)
"""The space of the current request's answer."""


def hold_answer_bytes(size: int) -> None:
    """Reserve memory for the answer of the current request, as ``AnswerWriter.hold`` does; outside of a server do nothing."""
    space = SPACE.get()
    if space is not None:
        space.writer.hold(space, size)
