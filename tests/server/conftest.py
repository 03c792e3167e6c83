"""An app over a tiny model, and a client of it."""

import pytest
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
