"""Rules of access: which hosts, web pages and API keys are answered."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from starlette.types import Scope

from inbedder.server.http_errors import RefusalError
from inbedder.server.settings import is_loopback

KEYLESS_ROUTES = ("/health", "/ready")
"""The routes that need no key, because a load balancer asks them."""
_HOST = re.compile(rb"(\[[0-9a-f:]+\]|[^][:/@%\s]+)(?::[0-9]+)?")
_OWN_SITES = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site of this server's own pages and of addresses that a person types."""


class AccessRules:
    """The rules of one server, which look at headers only."""

    def __init__(self, allowed_origins: Sequence[str], key: str | None) -> None:
        """Set the origins of allowed web pages, and the API key; without a key clients on this machine need none."""
        self._allowed_origins = {origin.encode() for origin in allowed_origins}
        self._key = None if key is None else key.encode()

    def check_site(self, scope: Scope) -> None:
        """Reject a host name that is not this machine's, and a web page of another site.

        A web page can make a browser send requests to a server on the browser's machine: by a name that resolves to it (DNS
        rebinding), by a form, a script or a frame. Browsers name the page in Origin or Sec-Fetch-Site.

        Args:
            scope: The request.

        Raises:
            RefusalError: With status 421 or 403.
        """
        hosts, origins = _list_values(scope, b"host"), _list_values(scope, b"origin")
        host = hosts[0].lower() if len(hosts) == 1 else b""
        if self._key is None and not _is_local(host):
            raise RefusalError(421, "Without an API key the server only answers requests to localhost.")
        is_foreign = any(value.lower() not in _OWN_SITES for value in _list_values(scope, b"sec-fetch-site"))
        if origins:
            is_foreign = not all(
                origin in self._allowed_origins or origin in (b"http://" + host, b"https://" + host) for origin in origins
            )
        if is_foreign:
            message = "A web page of another site sent this. Type the address, or add the page's origin to allowed_origins."
            raise RefusalError(403, message)

    def check_key(self, scope: Scope) -> None:
        """Reject a request without the API key (401); the scheme ``Bearer`` may be in any case."""
        if self._key is None or scope["path"] in KEYLESS_ROUTES:
            return
        credentials = _list_values(scope, b"authorization")
        scheme, _, key = credentials[0].partition(b" ") if len(credentials) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key, self._key):
            raise RefusalError(401, "The API key is missing or wrong. Send it as Authorization: Bearer KEY.")


def _list_values(scope: Scope, header: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header]


def _is_local(host: bytes) -> bool:
    """Return whether a value of Host is loopback, with or without a port."""
    match = _HOST.fullmatch(host)
    return match is not None and is_loopback(match[1].decode("latin-1"))
