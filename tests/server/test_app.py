"""The OpenAPI document and its page; random valid and invalid requests."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from inbedder.server.app import make_app
from inbedder.server.settings import Settings
from tests.server.conftest import URL

SNAPSHOT = Path(__file__).parents[2] / "docs" / "openapi.json"
CASES_PER_ROUTE = int(os.environ.get("INBEDDER_TEST_FUZZ", "15"))
"""Number of random requests per route."""


def test_the_document_is_the_committed_one(client):
    """INBEDDER_TEST_WRITE=1 rewrites the committed document."""
    document = json.dumps({**client.get("/openapi.json").json(), "info": {"title": "inbedder"}}, indent=1, sort_keys=True) + "\n"
    if os.environ.get("INBEDDER_TEST_WRITE"):
        SNAPSHOT.write_text(document, encoding="utf-8")
    assert document == SNAPSHOT.read_text(encoding="utf-8")


def test_every_example_of_the_document_succeeds(client):
    document = client.get("/openapi.json").json()
    routes = {path: methods["post"] for path, methods in document["paths"].items() if "post" in methods}
    assert len(routes) == 7
    for path, route in routes.items():
        name = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in document["components"]["schemas"][name]["examples"]:
            assert client.post(path, json={**example, "model": "tiny"}).status_code == 200, path
        assert {"401", "404", "413", "422", "429"} <= set(route["responses"])


def test_the_documentation_page_needs_no_other_server(client):
    page = client.get("/docs").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(addresses) == 3
    assert not re.search(r"https?://", page)
    for address in addresses:
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_random_requests_succeed_or_are_refused_and_never_fail(tiny, mode):
    schemathesis = pytest.importorskip("schemathesis")
    mode = schemathesis.GenerationMode(mode)
    app = make_app({"tiny": tiny}, Settings(max_cluster_items=20))
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    statuses = []
    for result in schema.get_all_operations():
        if (operation := result.ok()).path != "/metrics":

            @settings(max_examples=CASES_PER_ROUTE, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check_response(case):
                response = case.call(base_url=URL)
                statuses.append(response.status_code)
                assert 200 <= response.status_code < 500, (case.path, response.text)

            with suppress(Unsatisfiable):  # a route without fields has no invalid requests
                check_response()
    assert len(statuses) >= 5 * CASES_PER_ROUTE
    assert {200, 422} & set(statuses)
