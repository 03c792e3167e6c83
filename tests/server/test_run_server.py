"""``inbedder serve`` as a process: its start and its shutdown."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import inbedder
from inbedder.cache.database import DATABASE_FILE
from inbedder.cache.store import Store

ENVIRONMENT = {
    "INBEDDER_PORT": "0",
    "INBEDDER_MAX_ITEMS": "20000",
    "INBEDDER_MAX_TOKENS": "10000000",
    "INBEDDER_DTYPE": "float32",
}


STUCK_PROGRAM = """
import time
from inbedder import InBedder
from inbedder.cli import main
InBedder.answer = lambda *args, **kwargs: time.sleep(600)
main()
"""
"""The command with a model whose answers take longer than any test."""


@contextmanager
def run_server(*arguments, program=("-m", "inbedder"), **environment):
    """Run the command; yield the process, with its log in ``process.lines``, and its address."""
    command = [sys.executable, *program, "serve", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT, **environment})
    process.lines = []
    has_started = threading.Event()

    def read_lines():
        for line in process.stderr:
            process.lines.append(line)
            if line.startswith("Serving at "):
                has_started.set()
        has_started.set()

    reader = threading.Thread(target=read_lines)
    reader.start()
    try:
        assert has_started.wait(200)
        addresses = [line for line in process.lines if line.startswith("Serving at ")]
        process.reader = reader
        yield process, addresses[0].split()[2] if addresses else None
    finally:
        process.kill()
        process.wait()
        reader.join()


def send_request(url, fields=None, key=None, timeout=200):
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    request = urllib.request.Request(url, None if fields is None else json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return response.read()


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sigterm_finishes_accepted_requests_and_refuses_new_ones(make_model):
    with run_server("--model", f"tiny={make_model('bert')}", INBEDDER_API_KEY="canary-key") as (process, url):
        results = []
        fields = {"input": [f"canary text {number} " * 10 for number in range(3000)], "instruction": "canary question?"}
        client = threading.Thread(target=lambda: results.append(send_request(f"{url}/v1/embeddings", fields, "canary-key")))
        client.start()
        wait_until(lambda: b'in_progress{model="tiny"} 1.0' in send_request(f"{url}/metrics", key="canary-key"))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: any("Shutting down" in line for line in process.lines))
        # The connection is reset if it arrives just before the socket closes.
        with pytest.raises((urllib.error.URLError, ConnectionResetError)):
            send_request(f"{url}/health", timeout=5)
        client.join(200)
        assert len(json.loads(results[0])["data"]) == 3000
        assert process.wait(60) == 0
        process.reader.join()
        log = "".join(process.lines)
        assert "/v1/embeddings 200" in log
        assert "canary" not in log


def test_requests_longer_than_the_grace_time_do_not_delay_shutdown(make_model):
    with run_server("--model", make_model("bert"), INBEDDER_GRACE="1") as (process, url):
        fields = {"input": [f"{number} " * 40 for number in range(20000)], "normalized": True}

        def send_and_ignore_errors():
            with suppress(OSError):
                send_request(f"{url}/v1/embeddings", fields)

        threading.Thread(target=send_and_ignore_errors, daemon=True).start()
        wait_until(lambda: b"in_progress{" in send_request(f"{url}/metrics"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_thread_that_cannot_be_stopped_ends_with_the_grace_time(make_model):
    fields = {"input": ["a"], "instruction": "What?"}
    responses = []

    def send_and_keep_response(url):
        with pytest.raises(urllib.error.HTTPError) as refused:
            send_request(f"{url}/v1/answers", fields)
        responses.append((refused.value.code, refused.value.headers["Retry-After"], json.loads(refused.value.read())))

    with run_server("--model", make_model("bert"), program=("-c", STUCK_PROGRAM), INBEDDER_GRACE="1") as (process, url):
        client = threading.Thread(target=send_and_keep_response, args=(url,))
        client.start()
        wait_until(lambda: b"in_progress{" in send_request(f"{url}/metrics"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        client.join(60)
        process.reader.join()
        ((status, retry_after, body),) = responses
        assert (status, retry_after) == (503, "1")
        assert body["error"]["type"] == "overloaded_error"
        assert "grace time is over" in "".join(process.lines)
        assert "Traceback" not in "".join(process.lines)


def test_a_second_ctrl_c_ends_the_process_at_once(make_model):
    with run_server("--model", make_model("bert"), program=("-c", STUCK_PROGRAM), INBEDDER_GRACE="600") as (process, url):

        def send_and_ignore_errors():
            with suppress(OSError):
                send_request(f"{url}/v1/answers", {"input": ["a"], "instruction": "What?"})

        threading.Thread(target=send_and_ignore_errors, daemon=True).start()
        wait_until(lambda: b"in_progress{" in send_request(f"{url}/metrics"))
        process.send_signal(signal.SIGINT)
        wait_until(lambda: any("Shutting down" in line for line in process.lines))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_the_log_names_no_path_also_of_a_damaged_cache(make_model, tmp_path):
    folder = tmp_path / "canary-folder"
    folder.mkdir()
    model = folder / "tiny"
    model.symlink_to(make_model("bert"))
    key_file = folder / "key"
    key_file.write_text("canary-key")
    key_file.chmod(0o644)
    fields = {"input": ["a"], "instruction": "What?"}
    arguments = ("--model", str(model), "--cache", str(folder / "cache"), "--api-key-file", str(key_file))
    with run_server(*arguments) as (process, url):
        first = json.loads(send_request(f"{url}/v1/embeddings", fields, "canary-key"))
        with sqlite3.connect(folder / "cache" / DATABASE_FILE) as database:
            database.execute("UPDATE entries SET data = x'00'")
        assert json.loads(send_request(f"{url}/v1/embeddings", fields, "canary-key")) == first
        send_request(f"{url}/v1/clusters", {"texts": ["a", "b", "c"], "k": 2}, "canary-key")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.reader.join()
    log = "".join(process.lines)
    assert "The cache 'cache': 1 damaged entries are computed again" in log
    assert "/v1/clusters 200" in log
    assert log.count("Run chmod 600") == 1
    assert "canary" not in log
    assert os.path.dirname(inbedder.__file__) not in log


def test_a_kill_under_load_leaves_a_sound_cache_and_equal_vectors(make_model, tmp_path):
    arguments = ("--model", f"tiny={make_model('bert')}", "--cache", str(tmp_path / "cache"))
    requests = [{"input": [f"text {number} {row}" for row in range(8)], "instruction": "What?"} for number in range(100)]
    bodies = {}
    with run_server(*arguments) as (process, url):

        def send_requests(numbers):
            for number in numbers:
                try:
                    bodies[number] = send_request(f"{url}/v1/embeddings", requests[number])
                except OSError:
                    return

        threads = [threading.Thread(target=send_requests, args=(range(start, 100, 4),)) for start in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(bodies) > 10)
        process.kill()
        for thread in threads:
            thread.join()
    assert Store(tmp_path / "cache").verify() == []
    with run_server(*arguments) as (_, url):
        for number, body in bodies.items():
            repeated = json.loads(send_request(f"{url}/v1/embeddings", requests[number]))
            assert repeated == json.loads(body)
        hits = [
            line for line in send_request(f"{url}/metrics").decode().splitlines() if line.startswith("inbedder_cache_hits_total")
        ]
        assert float(hits[0].split()[1]) == 8 * len(bodies)


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--host", "0.0.0.0"), {}, "requires an API key"),
        ((), {"INBEDDER_HOST": "0.0.0.0"}, "requires an API key"),
        ((), {"INBEDDER_API_KEY": ""}, "API key"),
        ((), {"INBEDDER_MAX_ITEMS": "many"}, "max_items"),
        (("--host", "no.such.host.invalid"), {"INBEDDER_API_KEY": "k"}, "Cannot listen"),
        (("--model", "no/such/folder/anywhere"), {}, "no/such"),
    ],
)
def test_a_server_that_cannot_start_reports_an_error_without_a_traceback(arguments, environment, message):
    with run_server(*arguments, **environment) as (process, _):
        assert process.wait(100) == 1
        process.reader.join()
        assert message in "".join(process.lines)
        assert "Traceback" not in "".join(process.lines)


def test_a_port_in_use_is_reported_before_a_model_is_loaded(make_model):
    with run_server("--model", make_model("bert")) as (_, url):
        port = url.rpartition(":")[2]
        with run_server("--port", port, "--model", "no/such/folder") as (process, _):
            assert process.wait(100) == 1
            process.reader.join()
            assert f"port {port}" in "".join(process.lines)


def test_vectors_over_http_are_those_of_the_library(make_model):
    from inbedder import InBedder

    model = InBedder(make_model("opt"))
    with run_server("--model", f"opt={make_model('opt')}") as (_, url):
        body = json.loads(send_request(f"{url}/v1/embeddings", {"input": ["a cat"], "instruction": "What?", "normalized": False}))
        np.testing.assert_allclose(body["data"][0]["embedding"], model.encode("a cat", "What?"), atol=1e-4)
