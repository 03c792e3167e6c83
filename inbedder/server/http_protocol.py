"""HTTP/1.1 with bounds that hold before the app, and thus before the API key, is asked.

uvicorn's parser takes a URL, headers, chunk extensions and trailers of any length. This protocol counts every byte that is not
part of a body, and closes the connection when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from inbedder.server.http_errors import RefusalError

MAX_HEAD_BYTES = 65_536
"""Maximum number of bytes of a request's URL and headers, of an extension of a chunk, and of the trailers."""
HEADER_COST_BYTES = 32
"""Bytes that each header counts beyond its length, as in HTTP/2 (RFC 9113, 6.5.2), because many short ones take memory."""
PIECE_BYTES = 4096
"""Number of bytes that are parsed between two looks at the count."""
MAX_PIPELINED_REQUESTS = 16
"""Maximum number of requests that a client sends before it reads the first response."""
LINGER_SECONDS = 1.0
"""Seconds that a client that still sends has to read its response. If its connection were closed at once, it would be reset."""


class HttpProtocol(HttpToolsProtocol):
    """A connection of a client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Start with nothing counted."""
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start a connection."""
        super().connection_made(transport)
        self.transport: Any = _LingeringTransport(transport, self.loop, self._has_unread_data)

    def _has_unread_data(self) -> bool:
        return self._is_rejected or (self.cycle is not None and self.cycle.more_body)

    def data_received(self, data: bytes) -> None:
        """Parse data, and reject the client when a bound is exceeded."""
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            piece = data[start : start + PIECE_BYTES]
            self._head_bytes += len(piece)
            super().data_received(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                message = f"The URL, headers or what is between chunks is longer than {MAX_HEAD_BYTES:,} bytes. Shorten it."
                self._reject(RefusalError(431, message, close=True))
            elif len(self.pipeline) > MAX_PIPELINED_REQUESTS:
                message = "Too many requests on one connection. Read the responses before you send more."
                self._reject(RefusalError(429, message, retry_after=1, close=True))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or a trailer."""
        self._head_bytes += HEADER_COST_BYTES
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start a request; trailers, which follow its body, do not become headers."""
        self._head_bytes = 0
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Close the connection when a request is answered before its body has arrived; otherwise keep it."""
        if self.cycle.response_complete and self.cycle.more_body:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP."""
        self._reject(RefusalError(400, "This is not a valid HTTP request.", close=True))

    def _reject(self, refusal: RefusalError) -> None:
        """Send a refusal, unless a response has begun, and close the connection."""
        if self.transport.is_closing():
            return
        self._is_rejected = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = refusal.body
            headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
            lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


class _LingeringTransport:
    """A transport that, while the client still sends, closes its own side first."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, has_unread: Callable[[], bool]) -> None:
        self._transport, self._loop, self._has_unread = transport, loop, has_unread
        self._is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_lingering or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self._is_lingering:
            self._transport.write(data)

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._has_unread():
            self._transport.close()
            return
        self._is_lingering = True  # the protocol drops what it still receives
        self._transport.resume_reading()
        self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._transport.close)
