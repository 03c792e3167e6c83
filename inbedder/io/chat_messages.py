"""Messages of conversations with language models: roles and texts, from every shape in which traces hold them.

Read are messages of the OpenAI API (``content`` as text, None or a list of parts; ``tool_calls``), of OpenTelemetry's
conventions (``parts``), of OpenInference (``message.content``, ``message_content.text``), of Anthropic's and of Bedrock's API.
System prompts, which conversations share, and reasoning are left out. Images, sounds and files become ``[image]``, ``[audio]``
and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from inbedder.io.cell_values import to_text

MAX_PART_CHARACTERS = 2000
"""Maximum length of a part of a message; longer ones, such as what tools return, are cut in the middle."""
CALLS = "calls "
"""What begins the text of a message that calls a tool; each call is a message."""
CUT_MARK = " […] "
"""Where a text was cut in the middle."""
MAX_KEY_PARTS = 12
"""Maximum depth of keys such as ``0.message.tool_calls.1.tool_call.function.name``."""
ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "developer": "system"}
"""Other names of roles."""
SKIPPED_PARTS = {"reasoning", "thinking", "redacted_thinking", "compaction"}
TEXT_KEYS = ("text", "content", "refusal", "output_text")
WRAPPERS = ("message", "message_content", "tool_call", "body")
"""Keys that hold nothing but a message, a part or a call."""
LISTS = ("messages", "choices", "parts", "contents")
CALL_KEYS = ("function", "toolUse", "functionCall", "function_call")
RESULT_KEYS = ("response", "toolResult", "functionResponse", "result", "output")


class Message(NamedTuple):
    """A message of a conversation."""

    role: str
    """user, assistant, tool or error."""
    text: str
    """What was written, called or returned."""

    def __str__(self) -> str:
        """Return the line of a text that holds the message."""
        return f"{self.role.capitalize()}: {self.text}"


def read_messages(value: Any, role: str = "user") -> list[Message]:
    """Read the messages that a value holds.

    Args:
        value: A message, a list of messages or parts, an object with such a list, JSON of any of these, or text.
        role: The role of a value that names none.

    Returns:
        The messages with a text, without those of the system.

    Example:
        >>> from inbedder.io.chat_messages import read_messages
        >>> read_messages({"messages": [{"role": "user", "content": [{"type": "text", "text": "Where is it?"}]}]})
        [Message(role='user', text='Where is it?')]
    """
    value = load_json(value)
    if isinstance(value, dict):
        value = _unwrap(value)
    if isinstance(value, dict) and "role" not in value and isinstance(value.get("messages", value.get("choices")), list):
        value = value.get("messages", value.get("choices"))
    if isinstance(value, list) and any(isinstance(item, dict) and _is_message(item) for item in value):
        return [message for item in value for message in read_messages(item, role)]
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):  # a list per prompt of a batch
        return [message for item in value for message in read_messages(item, role)]
    if isinstance(value, dict):
        named_role = str(value.get("role") or value.get("type") or role).lower()
        role = ROLES.get(named_role, named_role) if "role" in value or named_role in ROLES else role
    if role == "system":
        return []
    parts = [clip_middle(" ".join(part.split()), MAX_PART_CHARACTERS) for part in _read_parts(value)]
    is_call = [role == "assistant" and part.startswith(CALLS) for part in parts]
    text = " ".join(part for part, has_call in zip(parts, is_call, strict=True) if part and not has_call)
    calls = [Message(role, part) for part, has_call in zip(parts, is_call, strict=True) if has_call]
    return [Message(role, text), *calls] if text else calls


def format_call(name: Any, arguments: Any) -> str:
    """Format a call of a tool, the same for arguments as JSON and as an object."""
    value = load_json(arguments)
    return f"{CALLS}{name}({'' if value in (None, {}) else to_text(value)})"


def load_json(value: Any) -> Any:
    """Return what a string of JSON holds; any other value, and a string that is no object or list, as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            pass
    return value


def clip_middle(text: str, limit: int) -> str:
    """Shorten a text to a number of characters by leaving out its middle."""
    if len(text) <= limit:
        return text
    half = (limit - len(CUT_MARK)) // 2
    return text[:half] + CUT_MARK + text[-half:]


def nest_keys(flat: Mapping[str, Any], prefix: str = "") -> Any:
    """Build the lists and objects of flat keys such as ``0.message.role`` after a prefix; None if no key has the prefix."""
    root: dict[str, Any] = {}
    for key in flat:
        if key.startswith(prefix):
            node, names = root, key[len(prefix) :].split(".", MAX_KEY_PARTS)
            for name in names[:-1]:
                inner = node.setdefault(name, {})
                node = inner if isinstance(inner, dict) else {}
            node[names[-1]] = flat[key]
    return _listify(root) if root else None


def _listify(node: Any) -> Any:
    """Turn objects whose keys are numbers into lists."""
    if not isinstance(node, dict):
        return node
    if all(key.isdecimal() for key in node):
        return [_listify(node[key]) for key in sorted(node, key=int)]
    return {key: _listify(value) for key, value in node.items()}


def _unwrap(value: dict[str, Any]) -> Any:
    """Return what is in wrappers, also in keys such as ``message.role``."""
    if any(str(key).startswith(tuple(f"{name}." for name in WRAPPERS)) for key in value):
        value = nest_keys(value)
    if "role" not in value and "content" not in value:
        for name in WRAPPERS:
            if name in value:
                inner = load_json(value[name])
                return _unwrap(inner) if isinstance(inner, dict) else inner
    return value


def _is_message(item: dict[str, Any]) -> bool:
    keys = {str(key).partition(".")[0] for key in item}
    return not keys.isdisjoint(("role", "message", "messages")) or item.get("type") in ROLES


def _read_parts(content: Any) -> Iterator[str]:
    """Yield the texts of a message or of its content: what was written, the calls of tools and what these returned."""
    if isinstance(content, list):
        for item in content:
            yield from _read_parts(item)
    elif isinstance(content, dict):
        yield from _read_part(_unwrap(content))
    elif content is not None:
        yield to_text(content)


def _read_part(part: Any) -> Iterator[str]:
    if not isinstance(part, dict):
        yield from _read_parts(part)
        return
    kind = str(part.get("type") or "")
    call = next((part[key] for key in CALL_KEYS if isinstance(part.get(key), dict)), None)
    result_key = next((key for key in RESULT_KEYS if part.get(key) is not None), None)
    text_key = next((key for key in TEXT_KEYS if part.get(key) is not None), None)
    if kind in SKIPPED_PARTS:
        return
    if kind in ("tool_call", "tool_use", "function_call", "server_tool_call") or call is not None:
        call = {**part, **(call or {})}
        arguments = next((call[key] for key in ("arguments", "input", "args") if call.get(key) is not None), None)
        yield format_call(call.get("name"), arguments)
    elif kind in ("tool_call_response", "tool_result", "function_call_output") or (result_key and not text_key):
        yield from _read_result(part[result_key] if result_key else part.get("content"))
    elif isinstance(part.get("modality"), str) or _is_medium(kind):
        yield f"[{part.get('modality') or kind.removeprefix('input_').removesuffix('_url')}]"
    else:
        calls = [{"type": "tool_call", **_unwrap(item)} for item in part.get("tool_calls") or () if isinstance(item, dict)]
        inner = [part[key] for key in (*([text_key] if text_key else []), *LISTS) if part.get(key)] + calls
        for value in inner:
            yield from _read_parts(value)
        if not inner and "role" not in part and kind not in ROLES:
            yield f"[{kind}]" if kind else to_text(part)


def _read_result(value: Any) -> Iterator[str]:
    """Yield the texts of what a tool returned."""
    value = load_json(value)
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        value = value["content"]
    is_parts = isinstance(value, list) and all(isinstance(item, dict) and {"type", "text"} & item.keys() for item in value)
    if is_parts:
        yield from _read_parts(value)
    elif value is not None:
        yield to_text(value)


def _is_medium(kind: str) -> bool:
    return any(name in kind for name in ("image", "audio", "video", "file", "blob", "document", "uri"))
