"""Bodies of requests, parsed and validated within bounds.

A JSON parser builds everything that a body holds before a schema can reject it: eight megabytes of nulls or empty lists become
gigabytes of objects and errors. This parser reads one value after another and stops at the first list, object or nesting that is
out of bounds. Long bodies are parsed in a thread, so that other requests are answered meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from json import JSONDecodeError
from typing import Any, TypeVar, get_type_hints

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from inbedder.prompting.tokenization import clean_text
from inbedder.server.settings import Settings

MAX_DEPTH = 3
"""Maximum nesting of lists and objects: an object with a list of objects, or of lists of token ids. A schema's own ``max_depth``
replaces it."""
MAX_FIELDS = 64
"""Maximum number of fields of an object. A schema's own ``max_fields`` replaces it."""
MAX_INLINE_BYTES = 16_384
"""Maximum size of a body that is parsed at once; a thread would cost more."""
_SPACE = re.compile(r"[ \t\n\r]*")
_SEPARATOR = re.compile(r"[ \t\n\r]*([,:\]}])[ \t\n\r]*")
_TOKEN_IDS = re.compile(r"\[[ \t\n\r]*[0-9][0-9, \t\n\r]*\]")
_LONG_NUMBER = re.compile("[0-9]{20}")
_PARSING_THREADS = CapacityLimiter(2)
Schema = TypeVar("Schema", bound=BaseModel)


class BoundedRoute(APIRoute):
    """A route whose body is parsed by ``parse_fields``; its endpoint takes the parsed ``fields`` and the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request."""
        schema = get_type_hints(self.endpoint)["fields"]

        async def handle_request(request: Request) -> Response:
            response: Response = await self.endpoint(await _read_fields(request, schema), request)
            return response

        return handle_request


async def _read_fields(request: Request, schema: type[Schema]) -> Schema:
    body = await request.body()
    if not body:
        raise _make_error("missing")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not re.fullmatch(r"application/(.+\+)?json", media_type):
        raise _make_error("content_type", "Send JSON with the header Content-Type: application/json")
    parse = partial(parse_fields, body, schema, next(iter(request.app.state.models.values())).settings)
    return parse() if len(body) <= MAX_INLINE_BYTES else await run_sync(parse, limiter=_PARSING_THREADS)


def parse_fields(body: bytes, schema: type[Schema], settings: Settings) -> Schema:
    """Parse and validate the body of a request.

    Args:
        body: JSON in UTF-8.
        schema: The schema of the request.
        settings: The server's settings, which limit the lengths of lists.

    Returns:
        The fields of the request. Their strings encode as UTF-8: lone surrogates become U+FFFD.

    Raises:
        RequestValidationError: If the body is not JSON, is out of bounds or does not fit the schema.

    Example:
        >>> from inbedder.server.request_body import parse_fields
        >>> from inbedder.server.schemas import AnswersRequest
        >>> from inbedder.server.settings import Settings
        >>> parse_fields(b'{"input": ["a", "b"]}', AnswersRequest, Settings()).input
        ['a', 'b']
    """
    try:
        bounds = getattr(schema, "max_depth", MAX_DEPTH), getattr(schema, "max_fields", MAX_FIELDS)
        value = BodyParser(body.decode("utf-8-sig"), settings, *bounds).parse()
    except (JSONDecodeError, UnicodeDecodeError):
        raise _make_error("json_invalid") from None
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**each, "nearest": _find_nearest_field(each, schema)} for each in errors]) from None


def _find_nearest_field(error: Mapping[str, Any], schema: type[BaseModel]) -> str | None:
    """Find the field of a request whose name is most like an unknown one."""
    if error["type"] != "extra_forbidden" or len(error["loc"]) > 1:
        return None
    return next(iter(get_close_matches(str(error["loc"][0]).lower(), list(schema.model_fields), n=1)), None)


class BodyParser:
    """A parser of one JSON document that bounds nesting, fields, list items and token ids."""

    def __init__(self, text: str, settings: Settings, max_depth: int = MAX_DEPTH, max_fields: int = MAX_FIELDS) -> None:
        """Set the document, its nesting, and the lengths of its lists and objects."""
        self.text = text
        self.max_depth, self.max_fields = max_depth, max_fields
        self.max_items = max(settings.max_items, settings.max_cluster_items)
        self.max_token_ids = settings.max_tokens
        self.field: str | None = None
        self._num_token_ids = 0

    def parse(self) -> Any:
        """Parse the document; JSONDecodeError: it is not JSON; RequestValidationError: it is out of bounds."""
        value, end = self._parse_value(self._skip_space(0), 0)
        if (end := self._skip_space(end)) < len(self.text):
            raise JSONDecodeError("Extra data", self.text, end)
        return value

    def _parse_value(self, start: int, depth: int) -> tuple[Any, int]:
        """Parse the value that starts at a position, and return it with its end."""
        opening = self.text[start : start + 1]
        if opening not in ("{", "["):
            return self._parse_scalar(start)
        if depth == self.max_depth:
            raise _make_error("nesting", f"Nest lists and objects at most {self.max_depth} deep", self.field)
        if opening == "{":
            fields, end = self._parse_members(start, "}", self.max_fields, partial(self._parse_field, depth=depth + 1))
            return dict(fields), end
        if match := _TOKEN_IDS.match(self.text, start):
            self._count_token_ids(start, match.end())
            if not _LONG_NUMBER.search(self.text, start, match.end()):
                return self._parse_scalar(start)
        return self._parse_members(start, "]", self.max_items, partial(self._parse_value, depth=depth + 1))

    def _parse_scalar(self, start: int) -> tuple[Any, int]:
        try:
            value, end = _DECODER.raw_decode(self.text, start)
        except JSONDecodeError:
            raise
        except ValueError:
            raise _make_error("number", "A number has too many digits. Send a shorter one", self.field) from None
        return clean_text(value) if isinstance(value, str) else value, end

    def _parse_members(
        self, start: int, closing: str, limit: int, parse_member: Callable[[int], tuple[Any, int]]
    ) -> tuple[list[Any], int]:
        """Parse the members of a list or an object up to a limit, and return them with the end of the list or object."""
        members: list[Any] = []
        position = self._skip_space(start + 1)
        if self.text.startswith(closing, position):
            return members, position + 1
        while len(members) < limit:
            member, position = parse_member(position)
            members.append(member)
            separator, position = self._parse_separator(position, (",", closing))
            if separator == closing:
                return members, position
        raise _make_error("too_long", f"Send at most {limit:,} {'items' if closing == ']' else 'fields'}", self.field)

    def _parse_field(self, start: int, depth: int) -> tuple[tuple[str, Any], int]:
        if not self.text.startswith('"', start):
            raise JSONDecodeError("Expected a name", self.text, start)
        name, end = self._parse_scalar(start)
        if depth == 1:
            self.field = name
        value, end = self._parse_value(self._parse_separator(end, (":",))[1], depth)
        if depth == 1:
            self.field = None
        return (name, value), end

    def _count_token_ids(self, start: int, end: int) -> None:
        """Count the members of a list of only digits, commas and spaces before they are parsed."""
        self._num_token_ids += 1 + self.text.count(",", start, end)
        if self._num_token_ids > self.max_token_ids:
            raise _make_error("too_long", f"Send at most {self.max_token_ids:,} token ids", self.field)

    def _parse_separator(self, position: int, separators: Sequence[str]) -> tuple[str, int]:
        """Parse one of the separators, and return it with the position of the next value."""
        match = _SEPARATOR.match(self.text, position)
        if match is None or match[1] not in separators:
            raise JSONDecodeError(f"Expected {' or '.join(separators)}", self.text, position)
        return match[1], match.end()

    def _skip_space(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position


def _reject_constant(name: str) -> Any:
    raise JSONDecodeError(f"{name} is not JSON", name, 0)


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _make_error(kind: str, message: str = "", field: str | None = None) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body",) if field is None else ("body", field), "msg": message}])
