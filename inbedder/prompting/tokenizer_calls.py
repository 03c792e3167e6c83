"""Calls of a tokenizer whose failures are errors with its name, and the characters that its vocabulary lacks."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inbedder.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

COMPATIBILITY_FORMS = "".join(map(chr, [*range(0xFB00, 0xFB07), *range(0xFF01, 0xFF5F)]))
"""Ligatures, as of a PDF, and characters in full width."""


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[Encoding]:
    """Tokenize n texts, in which special tokens are plain characters unless an option says otherwise, into n encodings."""
    try:
        encoded = tokenizer(list(texts), **{"split_special_tokens": True, "truncation": False, "verbose": False} | options)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of its Rust is no Exception: a pattern ran too long
        raise ModelError(f"The tokenizer of {tokenizer.name_or_path} fails on a text ({error}).") from error
    encodings = encoded.encodings
    assert encodings is not None  # the tokenizer is a fast one
    return list(encodings)


def find_unknown_forms(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Find ligatures and full-width characters that a WordPiece vocabulary lacks: a table of plain ones for ``str.translate``."""
    if type(tokenizer.backend_tokenizer.model).__name__ != "WordPiece":
        return {}
    plain_forms = [unicodedata.normalize("NFKC", form) for form in COMPATIBILITY_FORMS]
    ids, plain_ids = (
        [encoding.ids for encoding in tokenize(tokenizer, [f"a{form}a" for form in forms])]
        for forms in (COMPATIBILITY_FORMS, plain_forms)
    )
    return {
        ord(form): plain_forms[number]
        for number, form in enumerate(COMPATIBILITY_FORMS)
        if ids[number] != plain_ids[number] and (form.isalnum() or tokenizer.unk_token_id in ids[number])
    }
