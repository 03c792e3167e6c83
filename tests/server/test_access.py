"""Hosts, web pages and keys that are answered."""

import pytest

from tests.server.conftest import URL

KEY = "k3y-of-the-Server"
PATHS = ["/health", "/docs", "/docs/assets/swagger-ui-bundle.js", "/openapi.json", "/v1/models", "/metrics", "/none"]
ORIGIN = "https://app.example.org"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "LocalHost:8765", "127.0.0.1", "127.1.2.3:1", "[::1]", "[::1]:8765", "[0:0:0:0:0:0:0:1]"]
)
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "localhost.example.org",
        "localhost:8801.evil.com",
        "localhost:",
        "localhost:80:80",
        "localhost:８７６５".encode(),
        "user@localhost",
        "localhost/",
        "[::1%25evil.com]",
        "[::1]evil.com",
        "[localhost]",
        "::1",
        "127.0.0.1.evil.com",
        "127.0.0.1, evil.com",
        "127.0.0.1 evil.com",
        "0.0.0.0",
        "192.168.1.2",
    ],
)
def test_other_hosts_are_refused_without_a_key(client, host):
    for path in PATHS:
        assert client.get(path, headers={"Host": host}).status_code == 421, path


def test_two_host_headers_are_refused(client):
    for hosts in (("local", "host"), ("localhost", "localhost"), ("localhost", "evil.com")):
        assert client.get("/health", headers=[("Host", host) for host in hosts]).status_code == 421


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.com"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:8765.evil.com"},
        {"Origin": "http://evil.com", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "Cross-Site"},
        {"Sec-Fetch-Site": "unheard-of"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        [("Origin", URL), ("Origin", "http://evil.com")],
        [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")],
    ],
)
def test_web_pages_of_other_sites_are_refused(make_client, key, headers):
    client = make_client(api_key=key)
    for path in PATHS:
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            response = client.request(method, path, headers=headers)
            assert response.status_code == 403, (method, path)
            assert "access-control-allow-origin" not in response.headers
    assert response.json()["error"]["type"] == "permission_error"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": URL, "Sec-Fetch-Site": "same-origin"},
        {"Host": "LOCALHOST:8765", "Origin": "http://localhost:8765"},
        {"Host": "localhost", "Origin": "https://localhost"},
    ],
)
def test_the_pages_of_the_server_and_programs_are_answered(client, headers):
    for path in ("/docs", "/docs/assets/swagger-ui.css", "/openapi.json"):
        assert client.get(path, headers=headers).status_code == 200
    assert client.post("/v1/embeddings", json={"input": ["a"]}, headers=headers).status_code == 200


def test_no_response_is_shown_in_a_frame(client):
    for path in PATHS:
        response = client.get(path)
        assert response.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert response.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("key", [None, KEY])
def test_a_preflight_of_an_allowed_origin_is_answered_before_the_key(make_client, key):
    client = make_client(api_key=key, allowed_origins=[ORIGIN])
    headers = {
        "Origin": ORIGIN,
        "Sec-Fetch-Site": "cross-site",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }
    response = client.options("/v1/embeddings", headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert response.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-lang"
    assert "POST" in response.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in response.headers


def test_an_allowed_origin_reads_results_and_errors(make_client):
    client = make_client(api_key=KEY, allowed_origins=[ORIGIN])
    page = {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}
    results = {
        200: client.post("/v1/embeddings", json={"input": ["a"]}, headers={**page, "Authorization": f"Bearer {KEY}"}),
        401: client.post("/v1/embeddings", json={"input": ["a"]}, headers=page),
        422: client.post("/v1/embeddings", json={}, headers={**page, "Authorization": f"Bearer {KEY}"}),
    }
    for status, response in results.items():
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize("origin", ["https://app.example.org.evil.com", "http://app.example.org", "https://example.org", "null"])
def test_only_the_exact_origin_is_allowed(make_client, origin):
    client = make_client(allowed_origins=[ORIGIN])
    for headers in ({"Origin": origin}, {"Origin": origin, "Access-Control-Request-Method": "POST"}):
        assert client.options("/v1/embeddings", headers=headers).status_code == 403
        assert client.get("/health", headers=headers).status_code == 403


def test_an_allowed_origin_does_not_allow_another_host(make_client):
    client = make_client(allowed_origins=[ORIGIN])
    headers = {"Origin": ORIGIN, "Host": "evil.com", "Access-Control-Request-Method": "GET"}
    assert client.options("/health", headers=headers).status_code == 421


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEARER"])
def test_the_scheme_of_the_key_may_be_in_any_case(make_client, scheme):
    client = make_client(api_key=KEY)
    assert client.get("/v1/models", headers={"Authorization": f"{scheme} {KEY}"}).status_code == 200
    for value in (f"{scheme} {KEY.lower()}", f"{scheme}{KEY}", f"{scheme}\t{KEY}", f"Basic {KEY}", scheme):
        assert client.get("/v1/models", headers={"Authorization": value}).status_code == 401, value
