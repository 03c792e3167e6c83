"""Encodings of text files: the one that a file has, and advice for those that are not read."""

from __future__ import annotations

import codecs
import re

from inbedder.errors import InputError, format_value

BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins with the mark of UTF-16, so it is checked first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
HEAD_BYTES = 1024
"""Number of bytes from which the encoding of a file is detected."""
SAMPLE_BYTES = 4096
"""Number of bytes before and after an error from which an encoding is guessed."""
LATIN_ENCODINGS = ("cp1252", "cp1250")
"""Encodings of Windows for Latin scripts. The first reads Latin-1 too, with quotes and dashes at 0x80 to 0x9f."""
OTHER_ENCODINGS = ("cp1251", "cp1252", "koi8-r")
EAST_ASIAN_ENCODINGS = {
    "euc-kr": ("[\uac00-\ud7a3]", 0.95),
    "cp932": ("[\u3041-\u30ff]", 0.2),  # Shift-JIS of Windows
    "euc-jp": ("[\u3041-\u30ff]", 0.2),
    "gb18030": ("[\u4e00-\u9fff]", 0.8),
    "big5": ("[\u4e00-\u9fff]", 0.8),
}
"""Letters of a script, and their minimum share of the characters beyond ASCII in a text of the encoding."""
WORD = re.compile(rb"[A-Za-z\x80-\xff]*[\x80-\xff][A-Za-z\x80-\xff]*")
"""A word with a byte beyond ASCII."""
MAX_LATIN_SHARE = 0.5
"""Maximum share of bytes beyond ASCII in such words of a Latin script."""


def detect_encoding(source: str, head: bytes) -> str:
    """Detect the encoding from a file's first bytes: that of its byte order mark, or UTF-8; reject UTF-16 without a mark."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if head.count(0) <= len(head) // 4:
        return "utf-8-sig"
    name, zero_shares = format_value(source), [half.count(0) / max(1, len(half)) for half in (head[::2], head[1::2])]
    if min(zero_shares) > 0.1:
        raise InputError(f"{name} is not text: it contains many zero bytes. Remove them: tr -d '\\000' < {name}")
    encoding = "utf-16be" if zero_shares[0] > zero_shares[1] else "utf-16le"
    raise InputError(
        f"{name} is not UTF-8 text: it contains many zero bytes, as UTF-16 does. Convert it first: "
        f"iconv -f {encoding} -t utf-8 {name}"
    )


def explain_undecodable(source: str, error: UnicodeDecodeError) -> str:
    """Explain in one or two sentences why a text file cannot be decoded, and how to convert it."""
    name = format_value(source)
    if not error.encoding.startswith("utf-8"):
        return f"{name} begins as {error.encoding} text does but is damaged ({error.reason})."
    sample = _cut_sample(bytes(error.object), error.start)
    if _is_damaged_utf8(sample):
        return f"{name} is UTF-8 text with damaged bytes. Remove them: iconv -c -f utf-8 -t utf-8 {name}"
    first, *other_encodings = guess_encodings(sample)
    unpacking = "Unpack it, and convert" if source.lower().endswith(".gz") else "Convert"
    return (
        f"{name} is not UTF-8 text. {unpacking} it first: iconv -f {first} -t utf-8 {name}. "
        f"If the result is not readable, its encoding may be {' or '.join(other_encodings)}."
    )


def guess_encodings(sample: bytes) -> list[str]:
    """Guess the encodings of a sample that is not UTF-8: at least two names for ``iconv``, the most likely one first."""
    words = b"".join(WORD.findall(sample))
    num_beyond_ascii = sum(byte >= 0x80 for byte in words)
    if num_beyond_ascii <= MAX_LATIN_SHARE * len(words):
        return list(LATIN_ENCODINGS)
    texts = {encoding: _decode(sample, encoding) for encoding in EAST_ASIAN_ENCODINGS}
    decodable = [encoding for encoding, text in texts.items() if text]
    likely_encodings = [name for name in decodable if _is_in_script(str(texts[name]), *EAST_ASIAN_ENCODINGS[name])]
    return list(dict.fromkeys([*likely_encodings, *(decodable if likely_encodings else ()), *OTHER_ENCODINGS]))[:3]


def _cut_sample(content: bytes, position: int) -> bytes:
    """Cut the whole lines around a position; without line ends, all that is near."""
    window = content[max(0, position - SAMPLE_BYTES) : position + SAMPLE_BYTES]
    lines = b"\n".join(window.split(b"\n")[1:-1])
    return window if lines.isascii() else lines


def _is_damaged_utf8(sample: bytes) -> bool:
    """Return whether more characters beyond ASCII are valid UTF-8 than not."""
    text = sample.decode("utf-8", "replace")
    num_damaged = text.count("\ufffd")
    return sum(not character.isascii() for character in text) > 2 * num_damaged


def _decode(sample: bytes, encoding: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)  # the sample may end inside a character
    except UnicodeDecodeError:
        return None


def _is_in_script(text: str, letters: str, min_share: float) -> bool:
    characters = [character for character in text if not character.isascii()]
    return len(re.findall(letters, text)) >= min_share * len(characters)
