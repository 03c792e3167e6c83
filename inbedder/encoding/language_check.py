"""Texts that a model cannot read: in a language, or in signs, that its vocabulary does not know.

A tokenizer takes words that it knows whole and spells the others: an English vocabulary takes four letters of English per token,
two and a half of German, one of Russian; what it cannot even spell is the unknown token. Names, slang and typos are spelled too,
so a spelled text counts as unreadable only where it holds next to no English function words: every third word of English is one.
Multilingual vocabularies know the words of their languages, so nothing is said of these. ``scripts/results/legibility.json``
holds which shares of texts in several languages and of English corpora are found.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inbedder.errors import UnreadableTextWarning
from inbedder.prompting.stopwords import stopwords
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

SPELLED = 3.0
"""Fewer letters per token than that are spelled."""
SPELLED_WIDE = 0.95
"""The same for scripts without spaces (Chinese, Japanese, Korean), where a token that is known holds a character at least."""
FUNCTION_WORDS = 0.1
"""From this share of English function words on, a text is English."""
FEWEST_LETTERS = 8
"""Shorter texts may be a name."""
UNKNOWN_LETTERS, UNKNOWN_SIGNS = 0.2, 0.5
"""From these shares of letters, or of all characters, in unknown tokens on, a text is unreadable."""
READ = 2000
"""Characters of a text that are looked at."""
SAMPLE = 1000
"""Texts of a corpus that are looked at."""
WARNED_FROM = 0.03
"""Share of unreadable texts that is told of. Of English corpora up to two percent are found: lists of names, slang."""
FEWEST_TEXTS = 3
"""So many texts at least, or all, have to be unreadable."""


def is_unreadable(text: str, tokenizer: Any) -> bool:
    """Whether a fast tokenizer spells most of a text, or does not know it; False where the text is too short to tell."""
    text = clean_text(text[:READ])
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
    if unknown > UNKNOWN_SIGNS * signs or unknown_letters > UNKNOWN_LETTERS * len(letters):
        return True
    if sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters) > len(letters) / 2:
        return len(letters) < SPELLED_WIDE * tokens
    return FEWEST_LETTERS <= len(letters) < SPELLED * tokens and not _is_english(text)


def warn_of_unreadable(texts: Sequence[str], model: InBedder) -> float:
    """Warn, once for a corpus, when a model cannot read a part of its texts.

    Args:
        texts: n texts, of which a thousand, evenly spread, are looked at.
        model: The model that shall read them.

    Returns:
        The share of unreadable texts, 0 to 1.
    """
    looked_at = [texts[i * len(texts) // min(SAMPLE, len(texts))] for i in range(min(SAMPLE, len(texts)))]
    found = sum(is_unreadable(text, model.tokenizer.tokenizer) for text in looked_at)
    share = found / max(1, len(looked_at))
    if share >= WARNED_FROM and found >= min(FEWEST_TEXTS, len(looked_at)):
        message = (
            f"{share:.0%} of the texts seem to be in a language or in signs that {model.name} cannot read: their vectors and "
            "answers mean little. Take a model that knows the language (model, --model), or translate them first."
        )
        warnings.warn(UnreadableTextWarning(message, share), stacklevel=3)
    return share


def _is_english(text: str) -> bool:
    words = ["".join(filter(str.isalpha, word)) for word in text.lower().replace("'", " ").split()]
    words = [word for word in words if word]
    return sum(word in stopwords("nltk") for word in words) > FUNCTION_WORDS * len(words)
