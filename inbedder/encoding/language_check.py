"""Texts that a model cannot read: in a language, or in signs, that its vocabulary does not know.

A tokenizer takes words that it knows whole and spells the others: an English vocabulary takes four letters of English per token,
two and a half of German, one of Russian; what it cannot even spell is the unknown token. Names, slang and typos are spelled too,
so a spelled text counts as unreadable only where it holds next to no English function words: every third word of English is one.
Multilingual vocabularies know the words of their languages, so nothing is said of these. ``scripts/results/language_check.json``
holds which shares of texts in several languages and of English corpora are found.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inbedder.errors import UnreadableTextWarning
from inbedder.prompting.stopwords import load_stopwords
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

MIN_LETTERS_PER_TOKEN = 3.0
"""Fewer letters per token than that are spelled."""
MIN_WIDE_LETTERS_PER_TOKEN = 0.95
"""The same for scripts without spaces (Chinese, Japanese, Korean), where a token that is known holds a character at least."""
MIN_FUNCTION_WORD_SHARE = 0.1
"""From this share of English function words on, a text is English."""
MIN_LETTERS = 8
"""Shorter texts may be a name."""
MAX_UNKNOWN_LETTER_SHARE, MAX_UNKNOWN_SIGN_SHARE = 0.2, 0.5
"""From these shares of letters, or of all characters, in unknown tokens on, a text is unreadable."""
MAX_CHARACTERS = 2000
"""Characters of a text that are looked at."""
MAX_TEXTS = 1000
"""Texts of a corpus that are looked at."""
MIN_WARNED_SHARE = 0.03
"""Share of unreadable texts that is told of. Of English corpora up to two percent are found: lists of names, slang."""
MIN_UNREADABLE_TEXTS = 3
"""So many texts at least, or all, have to be unreadable."""


def is_unreadable(text: str, tokenizer: Any) -> bool:
    """Whether a fast tokenizer spells most of a text, or does not know it; False where the text is too short to tell."""
    text = clean_text(text[:MAX_CHARACTERS])
    encoding = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False).encodings[0]
    tokens = unknown = unknown_letters = 0
    for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        lettered = sum(character.isalpha() for character in text[start:end])
        tokens += lettered > 0
        if number == tokenizer.unk_token_id:
            unknown += end - start
            unknown_letters += lettered
    letters = [character for character in text if character.isalpha()]
    signs = sum(not character.isspace() for character in text)
    if unknown > MAX_UNKNOWN_SIGN_SHARE * signs or unknown_letters > MAX_UNKNOWN_LETTER_SHARE * len(letters):
        return True
    if sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters) > len(letters) / 2:
        return len(letters) < MIN_WIDE_LETTERS_PER_TOKEN * tokens
    return MIN_LETTERS <= len(letters) < MIN_LETTERS_PER_TOKEN * tokens and not _is_english(text)


def warn_of_unreadable(texts: Sequence[str], model: InBedder) -> float:
    """Warn, once for a corpus, when a model cannot read a part of its texts.

    Args:
        texts: n texts, of which a thousand, evenly spread, are looked at.
        model: The model that shall read them.

    Returns:
        The share of unreadable texts, 0 to 1.
    """
    looked_at = [texts[i * len(texts) // min(MAX_TEXTS, len(texts))] for i in range(min(MAX_TEXTS, len(texts)))]
    found = sum(is_unreadable(text, model.tokenizer.tokenizer) for text in looked_at)
    share = found / max(1, len(looked_at))
    if share >= MIN_WARNED_SHARE and found >= min(MIN_UNREADABLE_TEXTS, len(looked_at)):
        message = (
            f"{share:.0%} of the texts seem to be in a language or in signs that {model.name} cannot read: their vectors and "
            "answers mean little. Take a model that knows the language (model, --model), or translate them first."
        )
        warnings.warn(UnreadableTextWarning(message, share), stacklevel=3)
    return share


def _is_english(text: str) -> bool:
    words = ["".join(filter(str.isalpha, word)) for word in text.lower().replace("'", " ").split()]
    words = [word for word in words if word]
    return sum(word in load_stopwords("nltk") for word in words) > MIN_FUNCTION_WORD_SHARE * len(words)
