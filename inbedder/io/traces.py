"""Agents' traces as rows of a table: one text per conversation or per step. ``trace_spans`` lists the formats.

A conversation is what shares ``gen_ai.conversation.id``, ``session.id`` or Langfuse's session, or else a trace. Its messages are
put in the order of their times, and a message that several spans hold, such as the history of a chat, is in the text once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.chat_messages import Message, clip_middle
from inbedder.io.columns import LINE_COLUMN, Record
from inbedder.io.formats import BadRow, Rows
from inbedder.io.trace_spans import Span, parse_spans

UNITS = ("conversation", "step")
MAX_TEXT_CHARACTERS = 20_000
"""Maximum length of a text; longer conversations are cut in the middle."""
MAX_MESSAGES = 2000
"""Maximum number of messages of a conversation; of longer ones, the first and the last are kept."""
USER_COLUMN = "user_messages"
"""The column of what the user wrote."""
LAST_COLUMN = "last_user_message"
"""The column of the user's last message, which often says whether and where a conversation failed."""
NO_MESSAGES = "no messages. Instrumentations record contents only if they are told to."
JOINED_COLUMNS = ("trace_id", "model", "span_id")
"""Columns of spans of which a conversation may have several values."""


def join_traces(rows: Rows, unit: str) -> Iterator[tuple[int, Record | BadRow]]:
    """Turn the rows of a file of traces into rows with a text.

    Args:
        rows: Numbers and rows of the file.
        unit: "conversation" for one text per conversation, or "step" for one per span or reply that has messages.

    Yields:
        The number of the text, from 1, and its row: "text", "user_messages", "last_user_message", "trace_id" and further columns
        that have a value. Or the number and the reason of a row or a conversation that has no text.

    Raises:
        InputError: If the unit is unknown.

    Example:
        >>> from inbedder.io.traces import join_traces
        >>> chat = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "On its way."}]
        >>> for number, row in join_traces(iter([(1, {"id": "a", "messages": chat})]), "conversation"):
        ...     print(row["id"], row["text"])
        a User: Where is it?
        Assistant: On its way.
    """
    if unit not in UNITS:
        raise InputError(f"{format_value(unit)} is not a unit of traces. Choose one of {format_names(UNITS)}.")
    conversations: dict[str, _Conversation] = {}
    count = 0
    for number, row in rows:
        spans = _parse_row(row)
        if isinstance(spans, BadRow):
            yield number, spans
            continue
        for span in spans:
            if unit == "conversation" and span.conversation:
                conversations.setdefault(span.conversation, _Conversation()).add(span)
            elif unit == "conversation" and not span.inputs:
                yield number, BadRow(NO_MESSAGES)
            else:
                for record in _make_steps(span) if unit == "step" else [_make_record(span.inputs, span.columns)]:
                    count += 1
                    yield count, record
    for name, conversation in conversations.items():
        count += 1
        is_empty = not conversation.positions
        yield count, BadRow(f"trace {format_value(name)} has {NO_MESSAGES}") if is_empty else conversation.make_record()


def _parse_row(row: Record | BadRow) -> list[Span] | BadRow:
    if isinstance(row, BadRow):
        return row
    try:
        spans = list(parse_spans(row))
    except RecursionError:
        return BadRow("nested too deeply.")
    except (TypeError, AttributeError, ValueError, KeyError, OverflowError, OSError) as error:  # any value may be of a wrong type
        return BadRow(f"not readable as a trace ({error}).")
    is_empty = not spans and not {"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"} & row.keys()
    return BadRow("neither a span nor an observation, and without messages.") if is_empty else spans


@dataclass
class _Conversation:
    """What is known of a conversation while its spans are read."""

    positions: dict[tuple[Message, int], tuple[str, int]] = field(default_factory=dict)
    """The first time and position of each message, by the message and how often it occurred before in its span."""
    columns: Record = field(default_factory=dict)
    joined: dict[str, dict[str, None]] = field(default_factory=dict)
    """Distinct values of ``JOINED_COLUMNS``."""
    start: str = ""
    has_root: bool = False
    spans: int = 0

    def add(self, span: Span) -> None:
        """Add the columns of a span, and its messages that are not known."""
        for messages, time, first in ((span.inputs, span.start, 0), (span.outputs, span.end, len(span.inputs))):
            counts: Counter[Message] = Counter()
            for position, message in enumerate(messages, start=first):
                key, place = (message, counts[message]), (time, position)
                self.positions[key] = min(place, self.positions.get(key, place))
                counts[message] += 1
        if len(self.positions) > 2 * MAX_MESSAGES:
            self._drop_middle()
        for name in JOINED_COLUMNS:
            if value := span.columns.get(name):
                self.joined.setdefault(name, {})[str(value)] = None
        columns = {name: value for name, value in span.columns.items() if value is not None}
        status = "error" if "error" in (columns.get("status"), self.columns.get("status")) else "ok"
        is_first = span.is_root and not self.has_root
        self.columns = {**self.columns, **columns} if is_first else {**columns, **self.columns}
        if not self.start or (span.start and span.start < self.start):
            self.start = span.start
            self.columns["timestamp"] = span.columns["timestamp"]
        self.columns["status"] = status
        self.has_root |= span.is_root
        self.spans += 1

    def make_record(self) -> Record:
        """Make the row of the conversation."""
        if len(self.positions) > MAX_MESSAGES:
            self._drop_middle()
        messages = [message for message, _ in sorted(self.positions, key=self.positions.__getitem__)]
        results = {message.text for message in messages if message.role == "tool"}
        messages = [message for message in messages if message.role != "error" or message.text not in results]
        ids = {name: " ".join(self.joined.get(name, ())) for name in JOINED_COLUMNS if name != "span_id"}
        columns = {name: value for name, value in self.columns.items() if name not in JOINED_COLUMNS}
        return _make_record(messages, {**ids, **columns, "spans": self.spans})

    def _drop_middle(self) -> None:
        keys, half = sorted(self.positions, key=self.positions.__getitem__), MAX_MESSAGES // 2
        self.positions = {key: self.positions[key] for key in keys[:half] + keys[-half:]}


def _make_record(messages: list[Message], columns: Record) -> Record:
    """Make a row of messages; columns of the file that have the names of texts get an underscore."""
    user = [message.text for message in messages if message.role == "user"]
    texts = {LINE_COLUMN: "\n".join(map(str, messages)), USER_COLUMN: "\n".join(user), LAST_COLUMN: user[-1] if user else ""}
    texts = {name: clip_middle(text, MAX_TEXT_CHARACTERS) for name, text in texts.items()}
    return texts | {f"{name}_" if name in texts else name: value for name, value in columns.items() if value not in (None, "")}


def _make_steps(span: Span) -> Iterator[Record]:
    """Yield the rows of a span's steps: of an operation, its messages and those since the last reply; of a conversation, each."""
    steps: list[list[Message]] = [[]]
    for message in span.inputs:
        if message.role not in ("assistant", "error") and steps[-1] and steps[-1][-1].role == "assistant":
            steps.append([])
        steps[-1].append(message)
    if span.conversation:
        history = steps[-1] if steps[-1] and steps[-1][-1].role != "assistant" else []
        steps = [[*history, *span.outputs]] if history or span.outputs else []
    for number, step in enumerate(filter(None, steps), start=1):
        yield _make_record(step, span.columns if span.conversation else {**span.columns, "step": number})
