"""``inbedder serve`` as a process: how it starts, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from inbedder.cache.store import Store

PLACES = {"INBEDDER_PORT": "0", "INBEDDER_MAX_ITEMS": "20000", "INBEDDER_MAX_TOKENS": "10000000", "INBEDDER_DTYPE": "float32"}


@contextmanager
def serving(*arguments, **environment):
    """The process and its address; what it writes is in ``process.lines``."""
    command = [sys.executable, "-m", "inbedder", "serve", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **PLACES, **environment})
    process.lines = []
    ready = threading.Event()

    def read():
        for line in process.stderr:
            process.lines.append(line)
            if line.startswith("Serving at "):
                ready.set()
        ready.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert ready.wait(200)
        started = [line for line in process.lines if line.startswith("Serving at ")]
        process.reader = reader
        yield process, started[0].split()[2] if started else None
    finally:
        process.kill()
        process.wait()
        reader.join()


def ask(url, fields=None, key=None, timeout=200):
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    request = urllib.request.Request(url, None if fields is None else json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return response.read()


def wait_until(found, seconds=60):
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sigterm_ends_accepted_requests_and_refuses_new_ones(make_model):
    with serving("--model", f"tiny={make_model('bert')}", INBEDDER_API_KEY="canary-key") as (process, url):
        results = []
        fields = {"input": [f"canary text {number} " * 10 for number in range(3000)], "instruction": "canary asked?"}
        asking = threading.Thread(target=lambda: results.append(ask(f"{url}/v1/embeddings", fields, "canary-key")))
        asking.start()
        wait_until(lambda: b'in_progress{model="tiny"} 1.0' in ask(f"{url}/metrics", key="canary-key"))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: any("Shutting down" in line for line in process.lines))
        # Reset where it came in just before the socket closed.
        with pytest.raises((urllib.error.URLError, ConnectionResetError)):
            ask(f"{url}/health", timeout=5)
        asking.join(200)
        assert len(json.loads(results[0])["data"]) == 3000
        assert process.wait(60) == 0
        process.reader.join()
        written = "".join(process.lines)
        assert "/v1/embeddings 200" in written
        assert "canary" not in written


def test_requests_that_outlast_the_grace_time_do_not_keep_the_process(make_model):
    with serving("--model", make_model("bert"), INBEDDER_GRACE="1") as (process, url):
        fields = {"input": [f"{number} " * 40 for number in range(20000)], "normalized": True}

        def give_up():
            with suppress(OSError):
                ask(f"{url}/v1/embeddings", fields)

        threading.Thread(target=give_up, daemon=True).start()
        wait_until(lambda: b"in_progress{" in ask(f"{url}/metrics"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_kill_under_load_leaves_a_whole_cache_and_the_same_vectors(make_model, tmp_path):
    arguments = ("--model", f"tiny={make_model('bert')}", "--cache", str(tmp_path / "kept"))
    sent = [{"input": [f"text {number} {row}" for row in range(8)], "instruction": "What?"} for number in range(100)]
    before = {}
    with serving(*arguments) as (process, url):

        def load(numbers):
            for number in numbers:
                try:
                    before[number] = ask(f"{url}/v1/embeddings", sent[number])
                except OSError:
                    return

        threads = [threading.Thread(target=load, args=(range(start, 100, 4),)) for start in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(before) > 10)
        process.kill()
        for thread in threads:
            thread.join()
    assert Store(tmp_path / "kept").verify() == []
    with serving(*arguments) as (_, url):
        for number, body in before.items():
            again = json.loads(ask(f"{url}/v1/embeddings", sent[number]))
            assert again == json.loads(body)
        hits = [line for line in ask(f"{url}/metrics").decode().splitlines() if line.startswith("inbedder_cache_hits_total")]
        assert float(hits[0].split()[1]) == 8 * len(before)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("--host", "0.0.0.0"), {}, "Without a key"),
        ((), {"INBEDDER_HOST": "0.0.0.0"}, "Without a key"),
        ((), {"INBEDDER_API_KEY": ""}, "API key"),
        ((), {"INBEDDER_MAX_ITEMS": "many"}, "max_items"),
        (("--host", "no.such.host.invalid"), {"INBEDDER_API_KEY": "k"}, "Cannot listen"),
        (("--model", "no/such/folder/anywhere"), {}, "no/such"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(arguments, environment, words):
    with serving(*arguments, **environment) as (process, _):
        assert process.wait(100) == 1
        process.reader.join()
        assert words in "".join(process.lines)
        assert "Traceback" not in "".join(process.lines)


def test_a_taken_port_is_told_before_a_model_is_loaded(make_model):
    with serving("--model", make_model("bert")) as (_, url):
        port = url.rpartition(":")[2]
        with serving("--port", port, "--model", "no/such/folder") as (process, _):
            assert process.wait(100) == 1
            process.reader.join()
            assert f"port {port}" in "".join(process.lines)


def test_vectors_over_the_wire_are_the_librarys(make_model):
    from inbedder import InBedder

    model = InBedder(make_model("opt"))
    with serving("--model", f"opt={make_model('opt')}") as (_, url):
        body = json.loads(ask(f"{url}/v1/embeddings", {"input": ["a cat"], "instruction": "What?", "normalized": False}))
        np.testing.assert_allclose(body["data"][0]["embedding"], model.encode("a cat", "What?"), atol=1e-4)
