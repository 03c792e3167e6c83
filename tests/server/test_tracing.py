"""OpenTelemetry spans: what they hold, whose trace they continue, and where they are sent."""

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry import trace

from tests.server.test_middleware import CANARY
from tests.server.test_run_server import run_server, send_request

pytest.importorskip("fastapi.telemetry")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def exporter(monkeypatch):
    """An exporter that keeps the finished spans of this process."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def test_a_request_has_a_span_with_its_waits_and_passes(client, exporter):
    body = {"input": [f"{CANARY} love", "cats"], "instruction": f"{CANARY}?", "model": "tiny"}
    response = client.post("/v1/embeddings", json=body, headers=HEADERS)
    request = exporter.get_finished_spans()[-1]
    assert f"{request.context.trace_id:032x}" == TRACE and f"{request.parent.span_id:016x}" == PARENT
    assert (request.name, request.kind) == ("POST /v1/embeddings", trace.SpanKind.SERVER)
    expected = {
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.input_tokens": response.json()["usage"]["total_tokens"],
        "inbedder.texts": 2,
    }
    assert expected.items() <= request.attributes.items()
    queue, model_pass = (span for span in exporter.get_finished_spans() if span is not request)
    assert [queue.name, model_pass.name] == ["inbedder.queue", "inbedder.pass"]
    assert {span.parent.span_id for span in (queue, model_pass)} == {request.context.span_id}
    assert request.start_time <= queue.start_time <= queue.end_time == model_pass.start_time
    assert model_pass.start_time < model_pass.end_time <= request.end_time
    assert dict(model_pass.attributes) == {
        "inbedder.method": "embed",
        "inbedder.prompts": 2,
        "inbedder.pass.prompts": 2,
        "inbedder.pass.submissions": 1,
    }
    assert CANARY not in "".join(span.to_json() for span in exporter.get_finished_spans())


def test_a_failure_is_a_span_without_the_text_of_its_error(make_client, change_vectors, exporter):
    def fail(vectors, _prompts):
        if is_failing:
            raise ValueError(CANARY)
        return vectors

    is_failing = False
    client = make_client({"tiny": change_vectors(fail)})
    is_failing = True
    assert client.post("/v1/embeddings", json={"input": CANARY}).status_code == 500
    assert client.post("/v1/embeddings", json={"input": "a", CANARY: 1}).status_code == 422
    assert client.get(f"/{CANARY}", params={"input": CANARY}).status_code == 404
    failed, refused, unknown = (json.loads(span.to_json()) for span in exporter.get_finished_spans())
    assert (failed["status"]["status_code"], refused["status"]["status_code"]) == ("ERROR", "UNSET")
    assert refused["attributes"]["http.response.status_code"] == 422
    assert unknown["name"] == "GET" and "http.route" not in unknown["attributes"]
    assert CANARY not in json.dumps([failed, refused, unknown])


def test_routes_of_machines_have_no_span(client, exporter):
    for path in ("/health", "/ready", "/metrics", "/v1/models"):
        assert client.get(path).status_code == 200
    assert [span.name for span in exporter.get_finished_spans()] == ["GET /v1/models"]


def test_the_environment_switches_traces_on():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_port}"
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        with run_server(**settings, OTEL_SERVICE_NAME="answers", PATH=os.environ["PATH"]) as (process, url):
            send_request(f"{url}/v1/models", timeout=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        collector.shutdown()
    ((path, body),) = received
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert path == "/v1/traces"
    assert "answers" in [attribute.value.string_value for attribute in resource.resource.attributes]
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["GET /v1/models"]
