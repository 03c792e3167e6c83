"""What stands in front of every route: the key, the body's size and time, and the last resort for what nobody expected.

No request is logged with more than its route, status and time, and no exception with its message, which could hold a text.
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

OPEN = "/health"
"""The only route that needs no key."""
GONE = 499
"""Status in logs and counts of a request whose client did not wait."""


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: Settings, key: str | None, metrics: Metrics) -> None:
        """Stand in front of an app."""
        self.app, self.settings, self.metrics = app, settings, metrics
        self.authorization = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        started, status = time.perf_counter(), GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, await self._received(scope, receive), watched)
        except RefusalError as refusal:
            if refusal.status != GONE:
                await _send_refusal(refusal, watched)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("%s in %s, line %s", type(error).__name__, place.name, place.lineno)
            if status == GONE:
                await _send_refusal(RefusalError(500, "The server failed on this request. Its log says where."), watched)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(seconds)
            logger.info("%s %d %.1f ms", route, status, 1000 * seconds)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        if self.authorization is None:
            host = b"".join(value for name, value in headers if name == b"host").decode("latin-1")
            if not is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host):
                raise RefusalError(421, "Without a key the server answers requests to localhost alone.")  # DNS rebinding
        elif scope["path"] != OPEN:
            given = [value for name, value in headers if name == b"authorization"]
            if not hmac.compare_digest(given[0] if len(given) == 1 else b"", self.authorization):
                raise RefusalError(401, "The API key is missing or wrong. Send it as Authorization: Bearer KEY.")

    async def _received(self, scope: Scope, receive: Receive) -> Receive:
        """The whole body, bounded in size and time, as one message; behind it the connection's own."""
        most = self.settings.max_body_bytes
        too_long = RefusalError(413, f"The body is longer than {most:,} bytes. Send fewer texts per request.", close=True)
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) > most:
            raise too_long
        body, deadline = bytearray(), time.monotonic() + self.settings.body_timeout
        more = True
        while more:
            try:
                message = await asyncio.wait_for(receive(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise RefusalError(408, "The body did not arrive in time. Send it at once.", close=True) from None
            if message["type"] == "http.disconnect":
                raise RefusalError(GONE, "The client has gone.")
            body += message.get("body", b"")
            if len(body) > most:
                raise too_long
            more = message.get("more_body", False)
        whole: list[dict[str, Any]] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


async def _send_refusal(refusal: RefusalError, send: Send) -> None:
    body = refusal.body
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
