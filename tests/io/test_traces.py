"""Traces of every format become one text per conversation or step, with the columns that lead back to them."""

import gzip
import json
from itertools import count

import pytest

from inbedder.errors import InputError
from inbedder.io.chat_messages import CUT_MARK, MAX_PART_CHARACTERS, read_messages
from inbedder.io.tables import open_texts, read_table
from inbedder.io.traces import MAX_MESSAGES, MAX_TEXT_CHARACTERS
from inbedder.runtime.package_data import find_data_folder

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "Where is order 7?"}]}
CALL = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "get_order", "arguments": {"order": 7}}]}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": {"eta": "Monday"}}]}
REPLY = {"role": "assistant", "parts": [{"type": "text", "content": "It comes on Monday."}], "finish_reason": "stop"}
SYSTEM = {"role": "system", "parts": [{"type": "text", "content": "You are a helpful assistant."}]}
TEXT = (
    'User: Where is order 7?\nAssistant: calls get_order({"order": 7})\nTool: {"eta": "Monday"}\nAssistant: It comes on Monday.'
)


@pytest.fixture
def read(tmp_path):
    """Write rows as JSON lines and read them as traces."""
    numbers = count()

    def write_and_read(rows, unit="conversation", **options):
        path = tmp_path / f"{next(numbers)}.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", "utf-8")
        return read_table(str(path), traces=unit, **options)

    return write_and_read


def otlp_value(value):
    if isinstance(value, dict):
        return {"kvlistValue": {"values": otlp_attributes(value)}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp_value(item) for item in value]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def otlp_attributes(attributes):
    return [{"key": key, "value": otlp_value(value)} for key, value in attributes.items()]


def otlp(spans):
    """A line of the collector's file exporter."""
    resource = {"attributes": otlp_attributes({"service.name": "shop", "telemetry.sdk.language": "python"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": spans}]}]}


def otlp_span(number, attributes, parent="01", start=1, end=9, **fields):
    times = {"startTimeUnixNano": f"179000000{start}000000000", "endTimeUnixNano": f"179000000{end}000000000"}
    parents = {} if parent is None else {"parentSpanId": parent}
    ids = {"traceId": "ab", "spanId": f"0{number}", "name": f"span {number}", "kind": 3}
    return {**ids, **parents, **times, "attributes": otlp_attributes(attributes), **fields}


def test_otlp_lines_give_each_message_once_in_order_of_time(read):
    spans = [
        otlp_span(4, {"gen_ai.input.messages": [QUESTION, CALL, RESULT], "gen_ai.output.messages": [REPLY]}, start=6, end=8),
        otlp_span(3, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order"}, start=4, end=5),
        otlp_span(
            2,
            {
                "gen_ai.request.model": "m-1",
                "gen_ai.input.messages": json.dumps([SYSTEM, QUESTION]),
                "gen_ai.output.messages": [CALL],
            },
            start=2,
            end=3,
        ),
        otlp_span(1, {"customer": "gold", "gen_ai.output.messages": [REPLY], "http.route": "/chat"}, parent=None),
    ]
    (row,) = read([otlp([span]) for span in spans]).records
    assert row == {
        "text": TEXT,
        "user_messages": "Where is order 7?",
        "last_user_message": "Where is order 7?",
        "trace_id": "ab",
        "model": "m-1",
        "name": "span 1",
        "timestamp": "2026-09-21T14:13:21+00:00",
        "status": "ok",
        "service.name": "shop",
        "customer": "gold",
        "spans": 4,
    }


def test_spans_of_one_conversation_id_are_one_text_with_all_trace_ids(read):
    rows = [
        {
            "name": "chat",
            "context": {"trace_id": f"0x{number}", "span_id": f"0x{number}"},
            "start_time": f"2026-01-0{number}T10:00:00Z",
            "attributes": {"gen_ai.conversation.id": "c", "gen_ai.input.messages": [QUESTION] * number},
        }
        for number in (2, 1)
    ]
    (row,) = read(rows).records
    assert row["trace_id"] == "2 1" and row["session_id"] == "c" and row["timestamp"] == "2026-01-01T10:00:00Z"
    assert row["text"] == "User: Where is order 7?\nUser: Where is order 7?"  # twice, as in the longest of the lists


def test_events_flat_keys_and_log_records_give_the_same_text(read):
    call = [{"id": "c", "type": "function", "function": {"name": "get_order", "arguments": '{"order": 7}'}}]
    events = [
        ("gen_ai.system.message", {"content": "You are a helpful assistant."}),
        ("gen_ai.user.message", {"content": "Where is order 7?"}),
        ("gen_ai.assistant.message", {"tool_calls": json.dumps(call)}),
        ("gen_ai.tool.message", {"content": '{"eta": "Monday"}', "id": "c"}),
        ("gen_ai.choice", {"message": json.dumps({"role": "assistant", "content": "It comes on Monday."}), "index": 0}),
    ]
    span_events = otlp_span(
        2, {}, events=[{"name": name, "attributes": otlp_attributes(attributes)} for name, attributes in events]
    )
    records = [
        {"traceId": "ab", "spanId": "02", "timeUnixNano": f"179{i}", "eventName": name, "body": otlp_value(body)}
        for i, (name, body) in enumerate(events)
    ]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    flat = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Where is order 7?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.name": "get_order",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"order": 7}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": '{"eta": "Monday"}',
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "It comes on Monday.",
    }
    assert [read([row]).texts for row in (otlp([span_events]), logs, otlp([otlp_span(2, flat)]))] == [[TEXT]] * 3


def test_openinference_is_read_from_flat_keys_and_from_phoenix(read):
    call = {"tool_call.function.name": "get_order", "tool_call.function.arguments": '{"order": 7}'}
    inputs = [
        {"message.role": "system", "message.content": "You are a helpful assistant."},
        {
            "message.role": "user",
            "message.contents": [{"message_content.type": "text", "message_content.text": "Where is order 7?"}],
        },
        {"message.role": "assistant", "message.tool_calls": [call]},
        {"message.role": "tool", "message.content": '{"eta": "Monday"}'},
    ]
    output = [{"message.role": "assistant", "message.content": "It comes on Monday."}]
    phoenix = {"context.trace_id": "ab", "attributes.llm.input_messages": inputs, "attributes.llm.output_messages": output}
    flat = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "Where is order 7?",
        "llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "get_order",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"order": 7}',
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.content": '{"eta": "Monday"}',
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "It comes on Monday.",
    }
    tool = {"openinference.span.kind": "TOOL", "input.value": '{"order": 7}', "output.value": '{"eta": "Monday"}'}
    rows = [otlp_span(2, {**tool, "tool.name": "get_order"}, start=3, end=4), otlp_span(3, flat, start=2, end=5)]
    assert read([phoenix]).texts == [TEXT] == read([otlp(rows)]).texts


def test_langfuse_exports_are_read_with_both_spellings(read):
    messages = [{"role": "user", "content": "Where is order 7?"}]
    generation = {
        "id": "o-1",
        "trace_id": "t",
        "type": "GENERATION",
        "start_time": "2026-01-01 10:00:00.000000",
        "parent_observation_id": "o-0",
        "provided_model_name": "m",
        "input": json.dumps(messages),
        "output": '{"role": "assistant", "content": "It comes on Monday."}',
        "session_id": "",
        "level": "ERROR",
        "status_message": "rate limit",
        "metadata": {"tier": "gold"},
    }
    root = {
        "id": "o-0",
        "trace_id": "t",
        "type": "SPAN",
        "name": "turn",
        "parent_observation_id": "",
        "input": "Where is order 7?",
    }
    trace = {"id": "t", "timestamp": "2026-01-01T10:00:00Z", "input": {"messages": messages}, "output": "It comes on Monday."}
    api = {"id": "o-1", "traceId": "t", "type": "GENERATION", "startTime": "2026-01-01T10:00:00Z", "input": messages}
    text = "User: Where is order 7?\nAssistant: It comes on Monday."
    (row,) = read([generation, root]).records
    assert row["text"] == f"{text}\nError: rate limit" and row["error"] == "rate limit" and row["status"] == "error"
    assert (row["trace_id"], row["model"], row["name"], row["tier"]) == ("t", "m", "turn", "gold")
    assert read([trace]).texts == [text] and read([trace]).column("trace_id") == ["t"]
    assert read([api]).texts == ["User: Where is order 7?"]


def test_rows_with_messages_keep_their_columns(read):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": None},
        {"role": "assistant", "content": "A \ud83d lamp 💡.", "refusal": None},
        {"role": "user", "content": "Thanks"},
    ]
    table = read([{"id": 5, "messages": messages, "tools": [1], "text": "mine"}])
    assert table.texts == [
        "User: What is this? [image_url]\nAssistant: calls look()\nAssistant: A \ud83d lamp 💡.\nUser: Thanks".replace("_url", "")
    ]
    assert table.records[0]["id"] == 5 and table.records[0]["text_"] == "mine" and "tools" not in table.records[0]
    assert [(row["step"], row["text"]) for row in read([{"messages": messages}], "step").records] == [
        (1, "User: What is this? [image]\nAssistant: calls look()\nAssistant: A \ud83d lamp 💡."),
        (2, "User: Thanks"),
    ]


def test_a_step_is_a_reply_or_call_with_what_it_follows(read):
    spans = [
        otlp_span(2, {"gen_ai.input.messages": [QUESTION, CALL, RESULT], "gen_ai.output.messages": [REPLY]}),
        otlp_span(3, {"gen_ai.tool.name": "pay"}, status={"code": 2, "message": "timeout"}),
        otlp_span(4, {"http.route": "/chat"}),
    ]
    table = read([otlp(spans)], "step")
    assert table.texts == ['Tool: {"eta": "Monday"}\nAssistant: It comes on Monday.', "Error: timeout"]
    assert table.column("span_id") == ["02", "03"] and table.column("error") == [None, "timeout"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"messages": [', "not JSON"),
        ({"messages": "hello"}, "messages is not a list"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no messages"),
        ({"text": "a table"}, "neither a span nor an observation"),
        ({"resourceSpans": 3}, "not readable as a trace"),
        (otlp([otlp_span(1, {"http.route": "/"})]), "trace 'ab' has no messages"),
        ('{"messages": ' + "[" * 3000 + "]" * 3000 + "}", "nested too deeply"),
    ],
    ids=range(7),
)
def test_a_bad_line_is_named_and_can_be_skipped(read, row, reason):
    good = {"messages": [{"role": "user", "content": "Hello"}]}
    with pytest.raises(InputError, match=reason):
        read([row, good])
    table = read([row, good], skip_bad=True)
    assert table.texts == ["User: Hello"] and table.skipped == 1


def test_huge_parts_conversations_and_traces_are_bounded(read):
    assert len(read_messages("x" * 10**6)[0].text) < MAX_PART_CHARACTERS
    spans = [
        {
            "trace_id": "t",
            "id": str(i),
            "input": f"message {i}",
            "start_time": f"2026-01-01T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}",
        }
        for i in range(3 * MAX_MESSAGES)
    ]
    (text,) = read(spans).texts
    assert text.startswith("User: message 0\n") and text.endswith(f"message {3 * MAX_MESSAGES - 1}")
    assert CUT_MARK in text and len(text) <= MAX_TEXT_CHARACTERS
    assert read(spans).column("spans") == [3 * MAX_MESSAGES]


def test_traces_are_streamed_and_read_from_compressed_files(tmp_path):
    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"messages": [{"role": "user", "content": "Hello"}]}\n{"messages": 1}\n'))
    with open_texts(str(path), traces="conversation", skip_bad=True) as texts:
        assert list(texts) == [(1, "User: Hello")] and texts.skipped == 1
    with pytest.raises(InputError, match="not a unit of traces"):
        read_table(str(path), traces="turn")


def test_the_sample_has_72_conversations_with_ids_and_errors():
    table = read_table(str(find_data_folder("inbedder", "demo_texts") / "agent_traces.jsonl"), traces="conversation")
    assert len(set(table.column("trace_id"))) == len(table.texts) == 72
    assert table.column("status").count("error") == sum("tool error" in cause for cause in table.column("failure"))
