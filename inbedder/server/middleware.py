"""Middleware around every route: access, bodies, the log and metrics, and errors in OpenAI's format.

The log holds only the route, status and time of a request, and no message of an exception, which could contain a text.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inbedder.server.access import AccessRules
from inbedder.server.answer_writer import AnswerWriter
from inbedder.server.body_reader import BodyReader
from inbedder.server.http_errors import CLIENT_CLOSED_REQUEST, RefusalError, send_refusal
from inbedder.server.log_format import describe_origin
from inbedder.server.prometheus import Metrics
from inbedder.server.settings import Settings
from inbedder.server.tracing import redact_address

logger = logging.getLogger(__name__)

FRAME_HEADERS = ((b"content-security-policy", b"frame-ancestors 'none'"), (b"x-frame-options", b"DENY"))
"""Headers of every response: no web page shows one in a frame."""


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        key: str | None,
        metrics: Metrics,
        is_queue_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wrap an app; ``is_queue_full`` returns whether no model takes a further request."""
        self.app, self.metrics = app, metrics
        self.access = AccessRules(settings.allowed_origins, key)
        self.bodies = BodyReader(settings, is_queue_full)
        self.answers = AnswerWriter(settings)
        self.handler: ASGIApp = self._handle
        if settings.allowed_origins:  # it answers preflights, which hold no key, and names the origin in refusals too
            self.handler = CORSMiddleware(
                self._handle,
                allow_origins=settings.allowed_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("*",),
                expose_headers=("Retry-After",),
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or send the reason for its refusal."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        start, status = time.perf_counter(), CLIENT_CLOSED_REQUEST
        redact_address()

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *FRAME_HEADERS]
            await send(message)

        try:
            self.access.check_site(scope)
            await self.handler(scope, receive, record_status)
        except RefusalError as refusal:
            await send_refusal(refusal, record_status)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(seconds)
            logger.info("%s %d %.1f ms", route, status, 1000 * seconds)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app; send an error instead if it fails before its response starts."""
        has_started = False

        async def record_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await self.answers.send(message, send)

        try:
            self.access.check_key(scope)
            async with self.bodies.read(scope, receive) as receive_body:
                with self.answers.open_space():
                    await self.app(scope, receive_body, record_start)
            return
        except RefusalError as error:
            refusal = error
        except asyncio.CancelledError:  # the server cancels what outlasts the grace time
            refusal = RefusalError(503, "The server is shutting down. Try another server.", retry_after=1, close=True)
        except Exception as error:
            logger.error("A request failed: %s", describe_origin(error))
            logger.debug("It failed here:", exc_info=error)
            refusal = RefusalError(500, "The server failed on this request. See its log.")
        if not has_started and refusal.status != CLIENT_CLOSED_REQUEST:
            await send_refusal(refusal, send)
