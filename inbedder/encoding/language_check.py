"""Detection of texts that a model cannot read, because its vocabulary lacks their language or script.

A tokenizer keeps the words that it knows whole and spells the others: an English vocabulary takes four letters of English per
token, two and a half of German, one of Russian. What it cannot spell becomes the unknown token. Names, slang and typos are
spelled too, so a spelled text counts as unreadable only if it contains almost no English function words; in English, every third
word is one. A multilingual vocabulary spells some of its languages too, so only unknown tokens count there.
``scripts/results/language_check.json`` reports the detected share of texts in several languages and in English corpora.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.encoding.language_scope import begin_check
from inbedder.errors import UnreadableTextWarning
from inbedder.prompting.stopwords import load_stopwords
from inbedder.prompting.tokenization import clean_text
from inbedder.prompting.tokenizer_calls import tokenize

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

MIN_LETTERS_PER_TOKEN = 3.0
"""A text with fewer letters per token is spelled."""
MIN_WIDE_LETTERS_PER_TOKEN = 0.95
"""The same for scripts without spaces (Chinese, Japanese, Korean), where every known token is at least one character."""
MIN_FUNCTION_WORD_SHARE = 0.1
"""Minimum share of function words in an English text."""
MIN_LETTERS = 8
"""Minimum number of letters; a shorter text may be a name."""
MAX_UNKNOWN_LETTER_SHARE, MAX_UNKNOWN_CHARACTER_SHARE = 0.2, 0.5
"""Maximum share of letters, and of all characters, in unknown tokens of a readable text."""
MIN_FOREIGN_SHARE, MIN_WORD_LETTERS, SAMPLED_TOKENS = 0.2, 3, 5000
"""Minimum share of a multilingual vocabulary's longer tokens that have a letter beyond ASCII, by a sample."""
MAX_CHARACTERS = 2000
"""Number of characters of a text to check."""
MAX_TEXTS = 200
"""Number of texts of a call to check."""
MIN_WARNED_SHARE = 0.03
"""Minimum share of unreadable texts for a warning. In English corpora up to two percent are detected: lists of names, slang."""
MIN_UNREADABLE_TEXTS = 3
"""Minimum number of unreadable texts for a warning; in a smaller corpus all texts."""


def is_unreadable(text: str, tokenizer: Any) -> bool:
    """Whether a fast tokenizer spells or does not know most of a text; False if the text is too short to decide."""
    text = clean_text(text[:MAX_CHARACTERS])
    encoding = tokenize(tokenizer, [text], add_special_tokens=False)[0]
    num_tokens = num_unknown = num_unknown_letters = 0
    for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        num_letters = sum(character.isalpha() for character in text[start:end])
        num_tokens += num_letters > 0
        if token_id == tokenizer.unk_token_id:
            num_unknown += end - start
            num_unknown_letters += num_letters
    letters = [character for character in text if character.isalpha()]
    num_characters = sum(not character.isspace() for character in text)
    if num_unknown > MAX_UNKNOWN_CHARACTER_SHARE * num_characters or num_unknown_letters > MAX_UNKNOWN_LETTER_SHARE * len(
        letters
    ):
        return True
    if is_multilingual(tokenizer):
        return False
    if sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters) > len(letters) / 2:
        return len(letters) < MIN_WIDE_LETTERS_PER_TOKEN * num_tokens
    return MIN_LETTERS <= len(letters) < MIN_LETTERS_PER_TOKEN * num_tokens and not _is_english(text)


@lru_cache(maxsize=4)
def is_multilingual(tokenizer: Any) -> bool:
    """Whether a fast tokenizer has words of many languages: a fifth of its longer tokens have letters beyond ASCII."""
    sample = tokenizer.convert_ids_to_tokens(range(0, len(tokenizer), max(1, len(tokenizer) // SAMPLED_TOKENS)))
    decoder = tokenizer.backend_tokenizer.decoder
    words = [decoder.decode([token]) if decoder is not None else token for token in sample]
    words = [word for word in words if sum(map(str.isalpha, word)) >= MIN_WORD_LETTERS]
    return sum(not word.isascii() for word in words) > MIN_FOREIGN_SHARE * len(words)


def warn_of_unreadable(texts: Sequence[str], model: InBedder) -> float:
    """Warn, once within ``check_language_once``, when a model cannot read some of the texts.

    Args:
        texts: n texts, of which at most 200, evenly spread, are checked.
        model: The model that will read them.

    Returns:
        The share of unreadable texts, 0 to 1; 0 if they are not checked again.
    """
    if not begin_check():
        return 0.0
    num_checked = min(MAX_TEXTS, len(texts))
    checked_texts = [texts[i * len(texts) // num_checked] for i in range(num_checked)]
    tokenizer = model.tokenizer
    num_unreadable = sum(is_unreadable(tokenizer.clean(text[:MAX_CHARACTERS]), tokenizer.tokenizer) for text in checked_texts)
    share = num_unreadable / max(1, num_checked)
    if share >= MIN_WARNED_SHARE and num_unreadable >= min(MIN_UNREADABLE_TEXTS, num_checked):
        remedy = (
            "Choose a model of that language"
            if is_multilingual(model.tokenizer.tokenizer)
            else "multilingual reads about a hundred: inbedder models install multilingual, then model='multilingual' or --model "
            "multilingual"
        )
        name = Path(model.name).name
        message = (
            f"{share:.0%} of the texts seem to be in a language or script that {name} cannot read; their vectors and answers "
            f"mean little. {remedy}; or translate the texts first."
        )
        warnings.warn(UnreadableTextWarning(message, share), stacklevel=3)
    return share


def _is_english(text: str) -> bool:
    words = ["".join(filter(str.isalpha, word)) for word in text.lower().replace("'", " ").split()]
    words = [word for word in words if word]
    return sum(word in load_stopwords("nltk") for word in words) > MIN_FUNCTION_WORD_SHARE * len(words)
