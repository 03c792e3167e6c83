"""Spans of agents' traces, read from rows of OpenTelemetry, OpenInference, Langfuse and OpenAI files.

The formats, as of November 2026:

- OpenTelemetry: OTLP/JSON lines as the collector's file exporter writes them (``resourceSpans``, ``resourceLogs``), or a span per
  line as the SDKs print it. Messages are those of the semantic conventions for generative AI: ``gen_ai.input.messages`` and
  ``gen_ai.output.messages`` (semantic-conventions v1.37 to v1.41, semantic-conventions-genai v0.1.0), events such as
  ``gen_ai.user.message`` and ``gen_ai.choice`` (v1.28 to v1.36), and ``gen_ai.prompt.0.content`` (OpenLLMetry).
- OpenInference (specification in Arize-ai/openinference@00e2b515): ``llm.input_messages.0.message.content``, ``input.value``;
  also Phoenix's columns ``attributes.llm.input_messages``.
- Langfuse: exports of observations (``observations_v2``, ``observations``) and of traces, with the names of the blob storage
  export (``trace_id``) or of the API (``traceId``).
- OpenAI: rows with ``messages``, as in files for fine-tuning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from inbedder.io.cell_values import is_missing
from inbedder.io.chat_messages import Message, format_call, load_json, nest_keys, read_messages
from inbedder.io.columns import Record

MAX_COLUMN_CHARACTERS = 200
"""Maximum length of an attribute that becomes a column."""
CONVENTIONS = tuple(
    "gen_ai. llm. input. output. openinference. langfuse. traceloop. tool. exception. error. session. telemetry. process. host. "
    "os. http. net. network. server. url. user_agent. code. thread. event. metadata".split()
)
"""Beginnings of attributes that conventions define; the others become columns."""
TRACE_ID = ("traceId", "trace_id", "context.trace_id")
SPAN_ID = ("spanId", "span_id", "context.span_id")
PARENT_ID = ("parentSpanId", "parent_span_id", "parent_id", "parentObservationId", "parent_observation_id")
SESSION_ID = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "session_id", "sessionId")
MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "provided_model_name", "providedModelName", "model")
KIND = ("openinference.span.kind", "gen_ai.operation.name", "langfuse.observation.type", "span_kind", "type")
TOOL = ("gen_ai.tool.name", "tool.name")
START = ("startTimeUnixNano", "start_time_unix_nano", "timeUnixNano", "start_time", "startTime", "timestamp")
END = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
STATUS = ("status.code", "status.status_code", "status_code", "level")
ERROR_CODES = ("2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR")
ERROR = ("status.message", "status.description", "statusMessage", "status_message", "exception.message", "error.type")
MESSAGES = {
    "user": ("gen_ai.input.messages", "llm.input_messages"),
    "assistant": ("gen_ai.output.messages", "llm.output_messages"),
}
"""Attributes with messages, by the role of those that name none."""
MESSAGE_PREFIXES = {
    "user": ("llm.input_messages.", "gen_ai.prompt."),
    "assistant": ("llm.output_messages.", "gen_ai.completion."),
}
"""Beginnings of attributes that each hold a piece of a message."""
PAYLOADS = {
    "user": ("input.value", "langfuse.observation.input", "traceloop.entity.input", "input"),
    "assistant": ("output.value", "langfuse.observation.output", "traceloop.entity.output", "output"),
}
"""Fields with what an operation got and gave: messages, or anything."""
MODEL_KINDS = ("llm", "chat", "generation", "generate_content", "text_completion")
AGENT_KINDS = ("agent", "invoke_agent", "trace", "")
TOOL_KINDS = ("tool", "execute_tool")


@dataclass
class Span:
    """A recorded operation of an agent, or a recorded conversation."""

    inputs: list[Message]
    outputs: list[Message]
    columns: Record
    """Its ids, name, model and so on, and the user's own attributes."""
    conversation: str = ""
    """What the spans of a conversation share; empty for a recorded conversation."""
    start: str = ""
    end: str = ""
    """Times that sort as text."""
    is_root: bool = True


def parse_spans(row: Record) -> Iterator[Span]:
    """Parse the spans of a row.

    Args:
        row: A row of a file.

    Yields:
        The spans, none if the row is no trace's.

    Raises:
        ValueError: If the row has messages that are no list.
    """
    messages = load_json(row.get("messages"))
    if messages is not None:
        if not isinstance(messages, list):
            raise ValueError("messages is not a list")
        yield Span(read_messages(messages), [], {name: row[name] for name in row if name not in ("messages", "tools")})
        return
    groups = row.get("resourceSpans", row.get("resource_spans")) or row.get("resourceLogs", row.get("resource_logs"))
    if groups is None:
        yield from _parse_span(row, row.get("resource"))
        return
    for group in groups:
        for scope in _get(group, ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeLogs", "scope_logs")) or ():
            for span in scope.get("spans") or ():
                yield from _parse_span(span, group.get("resource"))
            for log_record in _get(scope, ("logRecords", "log_records")) or ():
                yield from _parse_span(_make_event_span(log_record), group.get("resource"))


def _make_event_span(log_record: Mapping[str, Any]) -> Record:
    """Make a span of a log record, which holds one event of a span."""
    attributes = _read_attributes(log_record.get("attributes"))
    name = _get(log_record, ("eventName", "event_name")) or attributes.get("event.name")
    body = _read_value(log_record.get("body"))
    event = {"name": name, "attributes": {**attributes, **(body if isinstance(body, dict) else {"content": body})}}
    return {**log_record, "attributes": {}, "body": None, "events": [event], "parent_id": _get(log_record, SPAN_ID)}


def _parse_span(row: Record, resource: Any) -> Iterator[Span]:
    """Yield the span of a row: an operation of OpenTelemetry, or an observation or a trace of Langfuse."""
    attributes = {**_read_attributes(_as_object(resource).get("attributes")), **_as_object(row.get("metadata"))}
    attributes |= _read_attributes(row.get("attributes"))
    attributes |= {name.removeprefix("attributes."): row[name] for name in row if name.startswith("attributes.")}
    inputs, outputs = _read_events(load_json(row.get("events")), attributes)
    fields = {**attributes, **_flatten(row)}
    has_payload = "input" in row or "output" in row
    trace_id = _get(fields, TRACE_ID) or (row.get("id") if has_payload else None)
    session_id = _get(fields, SESSION_ID)
    if not (trace_id or session_id):
        return
    is_root = _get(fields, PARENT_ID) is None
    kind = str(_get(fields, KIND) or "").lower()
    if kind in TOOL_KINDS or (_get(fields, TOOL) and kind not in MODEL_KINDS):
        outputs = [*outputs, *_read_tool(fields)]
    else:
        is_generic_read = is_root or kind in (*MODEL_KINDS, *AGENT_KINDS)
        inputs = inputs or _read_payload(fields, "user", is_generic_read)
        outputs = outputs or _read_payload(fields, "assistant", is_generic_read)
    is_failed = any(str(fields.get(name)) in ERROR_CODES for name in STATUS)
    error = str(_get(fields, ERROR) or "failed") if is_failed else None
    span_id = _get(fields, SPAN_ID) or (row.get("id") if has_payload else None)
    start, end = _get(fields, START), _get(fields, END)
    columns = {
        "trace_id": trace_id and str(trace_id).removeprefix("0x"),
        "span_id": span_id and str(span_id).removeprefix("0x"),
        "session_id": session_id,
        "name": _get(row, ("name", "trace_name")),
        "model": _get(fields, MODEL),
        "timestamp": _format_time(start),
        "status": "error" if is_failed else "ok",
        "error": error,
        **_select_columns(attributes),
    }
    outputs = [*outputs, *read_messages(error, "error")]
    times = (_make_sortable(start), _make_sortable(end or start))
    yield Span(inputs, outputs, columns, str(session_id or trace_id), *times, is_root)


def _flatten(row: Record) -> Record:
    """Return a row's fields, those of its context and status with their names before them."""
    fields = {name: value for name, value in row.items() if not is_missing(value) and value != ""}
    for name in ("context", "status"):
        fields |= {f"{name}.{key}": value for key, value in _as_object(row.get(name)).items()}
    return fields


def _read_payload(fields: Record, role: str, is_generic_read: bool) -> list[Message]:
    """Read what an operation got (role "user") or gave ("assistant"), from the first field that has messages."""
    values = [fields.get(name) for name in MESSAGES[role]]
    values += [nest_keys(fields, prefix) for prefix in MESSAGE_PREFIXES[role]]
    values += [fields.get(name) for name in PAYLOADS[role]] if is_generic_read else []
    return next((messages for value in values if (messages := read_messages(value, role))), [])


def _read_tool(fields: Record) -> list[Message]:
    """Read the call of a tool and what it returned, if either was recorded."""
    arguments = _get(fields, ("gen_ai.tool.call.arguments", *PAYLOADS["user"]))
    result = _get(fields, ("gen_ai.tool.call.result", *PAYLOADS["assistant"]))
    if arguments is None and result is None:
        return []
    call = format_call(_get(fields, (*TOOL, "name")), arguments)
    return [*read_messages(call, "assistant"), *read_messages([{"type": "tool_result", "content": result}], "tool")]


def _read_events(events: Any, attributes: Record) -> tuple[list[Message], list[Message]]:
    """Read the messages of a span's events, and add the attributes of those that describe the whole span."""
    inputs: list[Message] = []
    outputs: list[Message] = []
    for event in events if isinstance(events, list) else ():
        name, fields = str(event.get("name")), _read_attributes(event.get("attributes"))
        content = load_json(_get(fields, ("gen_ai.event.content", "gen_ai.prompt", "gen_ai.completion")))
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        if name in ("gen_ai.choice", "gen_ai.content.completion"):
            outputs += read_messages(content or fields, "assistant")
        elif name == "gen_ai.content.prompt":
            inputs += read_messages(content)
        elif role in ("user", "assistant", "tool"):
            message = content if isinstance(content, dict) else fields
            inputs += read_messages({"role": role, **{key: load_json(value) for key, value in message.items()}})
        elif name == "exception" or name.endswith("operation.details"):
            attributes |= fields
    return inputs, outputs


def _read_attributes(value: Any) -> Record:
    """Return attributes as an object: of OTLP's list of keys and values, or of an object."""
    value = load_json(value)
    if isinstance(value, list):
        return {str(pair["key"]): _read_value(pair.get("value")) for pair in value}
    return _as_object(value)


def _read_value(value: Any) -> Any:
    """Return the value of an OTLP attribute such as ``{"stringValue": "a"}``; any other as it is."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [_read_value(item) for item in inner.get("values") or ()]
    if kind == "kvlistValue":
        return _read_attributes(inner.get("values") or [])
    return int(inner) if kind == "intValue" else inner if kind.endswith("Value") else value


def _select_columns(attributes: Record) -> Record:
    """Select short attributes that no convention defines, such as those of the user, and the service's name."""
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, (str, int, float)) and len(str(value)) <= MAX_COLUMN_CHARACTERS and not name.startswith(CONVENTIONS)
    }


def _as_object(value: Any) -> Record:
    value = load_json(value)
    return value if isinstance(value, dict) else {}


def _get(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the first of several fields that has a value."""
    values = (fields.get(name) for name in names)
    return next((value for value in values if not is_missing(value) and value != ""), None)


def _make_sortable(time: Any) -> str:
    """Return a time as text whose order is that of time: nanoseconds with zeros before them, or ISO 8601."""
    text = "" if time is None else str(time).replace(" ", "T").removesuffix("+00:00").removesuffix("Z")
    return text.zfill(20) if text.isdecimal() else text


def _format_time(time: Any) -> str | None:
    """Format a time as ISO 8601; a number counts seconds, or a thousandth of it, and so on to nanoseconds."""
    if time is None or not str(time).isdecimal():
        return None if time is None else str(time)
    seconds = int(time)
    while seconds >= 10**11:
        seconds //= 1000
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
