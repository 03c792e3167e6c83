"""The one error of the server: what is sent instead of a result, in OpenAI's shape, without inputs and paths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_NAME = 60
"""Characters of a field's name in a message."""
_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "overloaded_error",
}


class RefusalError(Exception):
    """A request that is not answered with 200."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, retry_after: int | None = None, close: bool = False
    ) -> None:
        """Say why.

        Args:
            status: The HTTP status.
            message: What is wrong and what to do next; nothing of a text, a path or a key.
            field: The field that is wrong.
            retry_after: Seconds after which another try may succeed.
            close: Close the connection, since the rest of the body is not read.
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
        """The JSON that is sent; ``message`` also stands outside, where Cohere's client looks for it."""
        error = {"message": self.message, "type": _TYPES.get(self.status, "invalid_request_error"), "param": self.field}
        return json.dumps({"error": {**error, "code": self.status}, "message": self.message}).encode()


def of_validation(errors: Sequence[Mapping[str, Any]]) -> RefusalError:
    """What pydantic found in a request, without the values.

    Args:
        errors: As pydantic lists them.

    Returns:
        A refusal with 422, or with 400 for a body that is no JSON.
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        return RefusalError(400, "The body is not JSON.")
    names = [str(part)[:LONGEST_NAME] for part in first["loc"] if part != "body"]
    field = names[0] if names else None
    if first["type"] == "extra_forbidden":
        return RefusalError(422, f"Unknown field {names[-1]!a}. Leave it out.", field=field)
    if first["type"] == "missing":
        return RefusalError(422, f"The field {field or 'body'} is missing.", field=field)
    return RefusalError(422, f"{field or 'body'}: {first['msg']}.", field=field)
