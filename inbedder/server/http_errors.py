"""The server's only error: sent instead of a result, in OpenAI's format, without inputs or paths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import Send

CLIENT_CLOSED_REQUEST = 499
"""Status in logs and metrics of a request whose client disconnected; it is never sent."""
MAX_NAME_CHARACTERS = 60
"""Maximum length of a field's name in a message."""
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "overloaded_error",
}


class RefusalError(Exception):
    """A rejected request."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, retry_after: int | None = None, close: bool = False
    ) -> None:
        """Set status, message and headers.

        Args:
            status: The HTTP status.
            message: The problem and its fix, without any text, path or key.
            field: The invalid field.
            retry_after: Seconds after which a retry may succeed.
            close: Close the connection, because the body is not read to its end.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        if close:
            self.headers["connection"] = "close"
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    @property
    def body(self) -> bytes:
        """The JSON body; ``message`` is also at the top level, where Cohere's client looks for it."""
        error = {"message": self.message, "type": _ERROR_TYPES.get(self.status, "invalid_request_error"), "param": self.field}
        return json.dumps({"error": {**error, "code": self.status}, "message": self.message}).encode()


async def send_refusal(refusal: RefusalError, send: Send) -> None:
    """Send a refusal as the response of a request."""
    body = refusal.body
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def convert_validation_errors(errors: Sequence[Mapping[str, Any]]) -> RefusalError:
    """Convert pydantic's errors, without the values, to a refusal: 400 for a body that is not JSON, else 422."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return RefusalError(400, "The body is not JSON.")
    names = [str(part)[:MAX_NAME_CHARACTERS] for part in first["loc"] if part != "body"]
    field = names[0] if names else None
    if first["type"] == "extra_forbidden":
        nearest = first.get("nearest")
        advice = f"Did you mean {nearest!r}?" if nearest else "Leave it out."
        return RefusalError(422, f"Unknown field {names[-1]!a}. {advice}", field=field)
    if first["type"] == "missing":
        return RefusalError(422, f"The field {field or 'body'} is missing.", field=field)
    return RefusalError(422, f"{field or 'body'}: {first['msg']}.", field=field)
