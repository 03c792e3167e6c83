"""Middleware around every route: checks of the key, of the body's size and arrival time, and a handler of unexpected errors.

The log holds only the route, status and time of a request, and no message of an exception, which could contain a text.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inbedder.server.http_errors import RefusalError
from inbedder.server.prometheus import Metrics
from inbedder.server.settings import Settings, is_loopback

logger = logging.getLogger(__name__)

KEYLESS_ROUTE = "/health"
"""The only route that needs no key."""
CLIENT_CLOSED_REQUEST = 499
"""Status in logs and metrics of a request whose client disconnected."""


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: Settings, key: str | None, metrics: Metrics) -> None:
        """Wrap an app."""
        self.app, self.settings, self.metrics = app, settings, metrics
        self.authorization = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or send the reason for its refusal."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        start, status = time.perf_counter(), CLIENT_CLOSED_REQUEST

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, await self._read_body(scope, receive), record_status)
        except RefusalError as refusal:
            if refusal.status != CLIENT_CLOSED_REQUEST:
                await _send_refusal(refusal, record_status)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("%s in %s, line %s", type(error).__name__, frame.name, frame.lineno)
            if status == CLIENT_CLOSED_REQUEST:
                await _send_refusal(RefusalError(500, "The server failed on this request. See its log."), record_status)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(seconds)
            logger.info("%s %d %.1f ms", route, status, 1000 * seconds)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        if self.authorization is None:
            host = b"".join(value for name, value in headers if name == b"host").decode("latin-1")
            if not is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host):
                raise RefusalError(421, "Without an API key the server only answers requests to localhost.")  # DNS rebinding
        elif scope["path"] != KEYLESS_ROUTE:
            credentials = [value for name, value in headers if name == b"authorization"]
            if not hmac.compare_digest(credentials[0] if len(credentials) == 1 else b"", self.authorization):
                raise RefusalError(401, "The API key is missing or wrong. Send it as Authorization: Bearer KEY.")

    async def _read_body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body within its bounds of size and time; return a callable that replays it as one message."""
        max_bytes = self.settings.max_body_bytes
        too_long = RefusalError(413, f"The body is longer than {max_bytes:,} bytes. Send fewer texts per request.", close=True)
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) > max_bytes:
            raise too_long
        body, deadline = bytearray(), time.monotonic() + self.settings.body_timeout
        more = True
        while more:
            try:
                message = await asyncio.wait_for(receive(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise RefusalError(408, "The body did not arrive in time. Send it without a pause.", close=True) from None
            if message["type"] == "http.disconnect":
                raise RefusalError(CLIENT_CLOSED_REQUEST, "The client disconnected.")
            body += message.get("body", b"")
            if len(body) > max_bytes:
                raise too_long
            more = message.get("more_body", False)
        messages: list[dict[str, Any]] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        return receive_body


async def _send_refusal(refusal: RefusalError, send: Send) -> None:
    body = refusal.body
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
