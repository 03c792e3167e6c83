"""Reading of bodies within bounds of size, of time, and of memory over all requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Message, Receive, Scope

from inbedder.server.http_errors import CLIENT_CLOSED_REQUEST, RefusalError
from inbedder.server.settings import Settings

SMALL_BODY_BYTES = 65_536
"""Bodies up to this size are accepted even while larger ones fill ``max_total_body_bytes``."""


class BodyReader:
    """The bodies of all requests of a server."""

    def __init__(self, settings: Settings, is_queue_full: Callable[[], bool]) -> None:
        """Start without bodies; when ``is_queue_full``, a request that needs a model is rejected before its body is read."""
        self.total_bytes = 0
        """Number of bytes of the bodies of all requests that are not yet answered."""
        self._settings, self._is_queue_full = settings, is_queue_full

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive) -> AsyncIterator[Receive]:
        """Yield a callable that replays the body as one message; reject a long or slow one, or too many bytes together."""
        self._check_announced(scope)
        parts: list[bytes] = []
        body_bytes, deadline = 0, time.monotonic() + self._settings.body_timeout
        try:
            more = True
            while more:
                message = await self._receive_part(receive, deadline - time.monotonic())
                parts.append(message.get("body", b""))
                body_bytes += len(parts[-1])
                self.total_bytes += len(parts[-1])
                self._check_sizes(body_bytes)
                more = message.get("more_body", False)
            messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]
            parts.clear()

            async def receive_body() -> Message:
                return messages.pop() if messages else await receive()

            yield receive_body
        finally:
            self.total_bytes -= body_bytes

    def _check_announced(self, scope: Scope) -> None:
        """Reject a body by its headers."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise self._make_too_long()
        if (length != b"0" or b"transfer-encoding" in headers) and self._is_queue_full():
            raise RefusalError(429, "Too many requests wait. Try again later.", retry_after=1, close=True)

    async def _receive_part(self, receive: Receive, seconds: float) -> Message:
        try:
            message = await asyncio.wait_for(receive(), seconds)
        except asyncio.TimeoutError:
            raise RefusalError(408, "The body did not arrive in time. Send it without a pause.", close=True) from None
        if message["type"] == "http.disconnect":
            raise RefusalError(CLIENT_CLOSED_REQUEST, "The client disconnected.")
        return message

    def _check_sizes(self, body_bytes: int) -> None:
        if body_bytes > self._settings.max_body_bytes:
            raise self._make_too_long()
        has_others = body_bytes < self.total_bytes
        if has_others and body_bytes > SMALL_BODY_BYTES and self.total_bytes > self._settings.max_total_body_bytes:
            raise RefusalError(429, "Too many long bodies at a time. Try again later.", retry_after=1, close=True)

    def _make_too_long(self) -> RefusalError:
        limit = self._settings.max_body_bytes
        return RefusalError(413, f"The body is longer than {limit:,} bytes. Send fewer texts per request.", close=True)
