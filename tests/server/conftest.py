"""An app with a tiny model, and its client."""

import socket
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient

from inbedder import InBedder
from inbedder.server.app import make_app
from inbedder.server.run_server import make_config
from inbedder.server.settings import Settings

URL = "http://127.0.0.1:8765"


@pytest.fixture(scope="session")
def tiny(make_model):
    return InBedder(make_model("bert"), max_length=64)


@pytest.fixture
def make_client(tiny):
    """A function that makes an app and its client."""
    clients = []

    def make(models=None, headers=None, **settings):
        app = make_app(models or {"tiny": tiny}, Settings(**settings))
        client = TestClient(app, base_url=URL, headers=headers, raise_server_exceptions=False).__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client):
    return make_client()


def run_live_servers(tiny):
    """Yield a function that runs an app with uvicorn in a thread, and returns its address (host, port)."""
    servers = []

    def make(models=None, **settings):
        app = make_app(models or {"tiny": tiny}, Settings(**settings))
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(make_config(app, Settings(**settings)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return listener.getsockname()

    yield make
    for server, thread in servers:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def make_live(tiny):
    """A function that runs an app for one test."""
    yield from run_live_servers(tiny)


@pytest.fixture(scope="module")
def make_live_module(tiny):
    """A function that runs an app for the tests of a module."""
    yield from run_live_servers(tiny)


class ChangedBackbone:
    """A backbone whose vectors a test changes."""

    def __init__(self, backbone, change):
        self._backbone, self._change = backbone, change

    def __getattr__(self, name):
        return getattr(self._backbone, name)

    def embed(self, prompts, *settings):
        return self._change(self._backbone.embed(prompts, *settings), prompts)


@pytest.fixture
def change_vectors(tiny):
    """A function that makes a tiny model whose vectors are changed by a function of them and their prompts."""

    def make(change):
        return tiny.from_pipeline(tiny.pipeline.wrap(lambda backbone: ChangedBackbone(backbone, change)))

    return make
