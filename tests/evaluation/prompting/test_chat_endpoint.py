import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from inbedder.errors import ModelError
from inbedder_evaluation.prompting import few_shot
from inbedder_evaluation.prompting.chat_endpoint import ChatEndpoint
from inbedder_evaluation.results import load_cells
from tests.evaluation.prompting.test_few_shot_prompts import render_as_authors
from tests.evaluation.tasks.test_conditional_sts import CSV

KEY = "sk-secret-key"


class FakeEndpoint(BaseHTTPRequestHandler):
    failures: ClassVar[list] = []
    requests: ClassVar[list] = []
    headers_sent: ClassVar[list] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, body))
        self.headers_sent.append(self.headers["Authorization"])
        status = self.failures.pop(0) if self.failures else 200
        content = self.answer(body["messages"])
        message = {"role": "assistant", "content": content}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        answer["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
        payload = answer if status == 200 else {"error": {"message": f"status {status} for {self.headers['Authorization']}"}}
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(json.dumps(payload).encode())

    def answer(self, messages):
        """Answer with the length of the first message, or with nothing."""
        return None if "refuse" in messages[0]["content"] else f"{len(messages[0]['content'])}"

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    FakeEndpoint.failures, FakeEndpoint.requests, FakeEndpoint.headers_sent = [], [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeEndpoint)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_each_prompt_is_one_message_answered_in_order(server):
    assert ChatEndpoint(server, "gpt-4-0314").answer(["a" * length for length in (5, 1, 3)]) == ["5", "1", "3"]
    assert {path for path, _ in FakeEndpoint.requests} == {"/v1/chat/completions"}
    body = FakeEndpoint.requests[0][1]
    assert body["model"] == "gpt-4-0314" and [message["role"] for message in body["messages"]] == ["user"]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0, 1, 5)
    assert set(FakeEndpoint.headers_sent) == {f"Bearer {KEY}"}


def test_a_refusal_is_an_empty_answer(server):
    assert ChatEndpoint(server, "m").answer(["refuse"]) == [""]


def test_busy_endpoints_are_asked_again(server):
    FakeEndpoint.failures = [429, 503, 500]
    assert ChatEndpoint(server, "m").answer(["abc"]) == ["3"]
    assert len(FakeEndpoint.requests) == 4


def test_a_refused_key_stops_at_once_and_is_not_quoted(server, caplog):
    FakeEndpoint.failures = [401]
    with caplog.at_level("DEBUG"), pytest.raises(ModelError) as raised:
        ChatEndpoint(server, "m").answer(["abc"])
    assert "status 401" in str(raised.value) and "OPENAI_API_KEY" in str(raised.value)
    assert KEY not in str(raised.value) and KEY not in caplog.text and raised.value.__cause__ is None
    assert len(FakeEndpoint.requests) == 1


def test_an_endpoint_that_needs_no_key_is_asked_without_one(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ChatEndpoint(server, "m").answer(["abc"]) == ["3"]
    assert FakeEndpoint.headers_sent == ["Bearer none"]


def test_an_unreachable_endpoint_is_named(monkeypatch):
    monkeypatch.setattr("inbedder_evaluation.prompting.chat_endpoint.MAX_RETRIES", 0)
    with pytest.raises(ModelError, match=r"http://127.0.0.1:9/v1 did not answer for the model 'm' \(APIConnectionError"):
        ChatEndpoint("http://127.0.0.1:9/v1", "m").answer(["abc"])


def test_few_shot_prompts_reach_an_endpoint_byte_for_byte(server, tmp_path):
    (tmp_path / "c.csv").write_text("\n".join(CSV.splitlines()[:5]))
    options = ["--endpoint", server, "--model", "gpt-4-0314", "--data", tmp_path / "c.csv", "-o", tmp_path / "f.json"]
    options += ["--instruction", "short", "--shots", "0"]
    result = CliRunner().invoke(few_shot.app, [str(option) for option in options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows = [dict(zip(CSV.splitlines()[0].split(","), line.split(","), strict=True)) for line in CSV.splitlines()[1:5]]
    prompts = {body["messages"][0]["content"] for _, body in FakeEndpoint.requests}
    assert prompts == {render_as_authors(row, [], "csts", "causal", "short") for row in rows}
    (cell,) = load_cells(tmp_path / "f.json")
    assert cell.model == "gpt-4-0314, short instruction, 0 shots" and cell.scores["percent_outside_scale"] == 100
    assert KEY not in (tmp_path / "f.json").read_text()
