"""An app over a tiny model, and a client of it."""

import socket
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient

from inbedder import InBedder
from inbedder.server.app import make_app
from inbedder.server.settings import Settings

URL = "http://127.0.0.1:8765"


@pytest.fixture(scope="session")
def tiny(make_model):
    return InBedder(make_model("bert"), max_length=64)


@pytest.fixture
def make_client(tiny):
    """A client of an app; settings and models as given."""
    opened = []

    def make(models=None, headers=None, **settings):
        app = make_app(models or {"tiny": tiny}, Settings(**settings))
        client = TestClient(app, base_url=URL, headers=headers, raise_server_exceptions=False).__enter__()
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client):
    return make_client()


@pytest.fixture
def make_live(tiny):
    """The address (host, port) of an app behind a real uvicorn, which runs in a thread."""
    servers = []

    def make(models=None, **settings):
        app = make_app(models or {"tiny": tiny}, Settings(**settings))
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, ws="none", log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return listening.getsockname()

    yield make
    for server, thread in servers:
        server.should_exit = True
        thread.join(30)


class FailingBackbone:
    """A model whose passes end in what a test wants."""

    def __init__(self, backbone, result):
        self._backbone, self._result = backbone, result

    def __getattr__(self, name):
        return getattr(self._backbone, name)

    def embed(self, prompts, *settings):
        return self._result(self._backbone.embed(prompts, *settings), prompts)


@pytest.fixture
def failing(tiny):
    """The tiny model, its vectors changed by a function of them and their prompts."""

    def make(result):
        return tiny.with_parts(tiny.parts.wrap(lambda backbone: FailingBackbone(backbone, result)))

    return make
