"""OpenTelemetry spans below the request's own, which FastAPI records: the wait in the queue, and the passes of the model.

They hold names, numbers and times, no texts and no messages of exceptions. Without a tracer provider nothing is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

if TYPE_CHECKING:
    from inbedder.server.batch_queue import Submission, Ticket

STATUS_ROUTES = ("/health", "/ready", "/metrics")
"""Routes that machines ask every few seconds; they get no span."""
TELEMETRY: Any = {
    "auto_configure": True,
    "exclude": lambda scope: scope.get("path") in STATUS_ROUTES,
    "logs": False,
    "metrics": False,
    "operation_spans": False,
}
"""FastAPI's settings: spans are exported if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set. Its logs would hold messages of exceptions;
Prometheus has the metrics."""


def redact_address() -> None:
    """Take path and query out of a request's span: a client could write a text there. The route stays."""
    trace.get_current_span().set_attributes({"url.path": "REDACTED", "url.query": "REDACTED"})


def describe_request(model: str, ticket: Ticket) -> None:
    """Add a request's model and its numbers of texts and tokens to its span."""
    trace.get_current_span().set_attributes(
        {"gen_ai.request.model": model, "gen_ai.usage.input_tokens": ticket.tokens, "inbedder.texts": ticket.texts}
    )


def record_pass(batch: Sequence[Submission], start: int) -> None:
    """Record a pass that ends now, and the waits before it, in the trace of each of its requests.

    Args:
        batch: The submissions that shared the pass.
        start: When the pass began, in nanoseconds since the epoch.
    """
    end, tracer = time.time_ns(), trace.get_tracer("inbedder")
    prompts = sum(len(submission.prompts) for submission in batch)
    for submission in batch:
        context = submission.context
        if not trace.get_current_span(context).is_recording():
            continue
        tracer.start_span("inbedder.queue", context, start_time=submission.submitted_at).end(start)
        attributes: dict[str, str | int] = {
            "inbedder.method": submission.method,
            "inbedder.prompts": len(submission.prompts),
            "inbedder.pass.prompts": prompts,
            "inbedder.pass.submissions": len(batch),
        }
        tracer.start_span("inbedder.pass", context, attributes=attributes, start_time=start).end(end)
