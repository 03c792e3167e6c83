"""Metrics of GET /metrics: counts and times, without any content of requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        """Start all metrics at zero."""
        self.registry = CollectorRegistry()
        self.requests = Counter("inbedder_requests", "Requests.", ["route", "status"], registry=self.registry)
        self.latency = Histogram("inbedder_request_seconds", "Time of a request.", ["route"], registry=self.registry)
        self.queue = Gauge("inbedder_queue_prompts", "Prompts that wait for a pass.", ["model"], registry=self.registry)
        self.waiting = Gauge("inbedder_requests_in_progress", "Requests in progress.", ["model"], registry=self.registry)
        self.tokens = Counter("inbedder_tokens", "Tokens of prompts.", ["model"], registry=self.registry)
        self.hits = Counter("inbedder_cache_hits", "Results found in the cache.", ["model"], registry=self.registry)
        self.passes = Histogram(
            "inbedder_pass_prompts",
            "Prompts in a pass of the model.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Render all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
