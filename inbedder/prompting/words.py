"""Words of texts in any language, the stopwords among them, and the scripts of their letters.

BudouX splits Chinese, Japanese and Thai, which have no spaces between words; stopwordsiso has lists of 57 languages. A text's
language is the one whose stopwords are most frequent in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from inbedder.errors import import_extra
from inbedder.prompting.stopwords import load_stopwords

SPACELESS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Letters of scripts without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Chinese characters."""
HIRAGANA = re.compile("[\u3040-\u309f]")
PARSERS = {
    "japanese": re.compile("[\u3040-\u30ff]"),
    "thai": re.compile("[\u0e00-\u0e7f]"),
    "simplified_chinese": re.compile("[\u3400-\u9fff\uf900-\ufaff]"),
}
"""BudouX's models and the letters that call for them, in the order in which they are tried."""
CLEAR_ENGLISH_SHARE = 0.4
"""Share of English stopwords from which no other language is tried; in English, every third word is one."""
MIN_COUNT = 2
"""Minimum number of stopwords to identify the language of a text."""
SCRIPT_NAMES = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "IDEOGRAPHIC": "CJK"}
"""Scripts by the first word of a letter's Unicode name, where that word is not the script itself."""
SCRIPTLESS = ("", "COMBINING", "MODIFIER", "VARIATION")
"""First words of the names of marks and letters that many scripts use."""
ADDRESS = re.compile(r"https?:\S*|www\.\S+|[\w.-]+\.[A-Za-z]{2,}/\S*|(?<!\w)@\w+|&\w+;")
"""Addresses, names of users such as @anna, and HTML's entities, whose parts are no words."""
MARKUP_WORDS = frozenset("rt amp via http https www".split())
"""Words of retweets, entities and addresses, which say nothing about a text."""
NONE_ANSWER = re.compile(r"[\W_]*none[\W_]*", re.IGNORECASE)
"""The answer with which a trained model says that a text gives none."""


def split_spaceless(text: str) -> list[str]:
    """Split a text without spaces between its words; other texts come back whole.

    Japanese nouns lose the particles at their ends, which are stopwords.

    Args:
        text: A part of a text without spaces.

    Returns:
        Its words.

    Example:
        >>> split_spaceless("荷物は二日遅れて")
        ['荷物', '二日遅れて']
        >>> split_spaceless("parcel")
        ['parcel']
    """
    name = next((name for name, letters in PARSERS.items() if letters.search(text)), None)
    if name is None:
        return [text]
    words = [word for word in _load_parser(name).parse(text) if word.strip()]
    return [_strip_particles(word) for word in words] if name == "japanese" else words


def _strip_particles(phrase: str) -> str:
    """Strip a particle, which is a stopword, from the end of a Japanese phrase that begins with a noun."""
    for start in range(1, len(phrase)):
        if phrase[start:] in _load_list("ja") and not HIRAGANA.search(phrase[:start]):
            return phrase[:start]
    return phrase


def strip_addresses(text: str, replacement: str = " ") -> str:
    """Replace addresses, names of users and HTML's entities, whose parts are no words.

    Args:
        text: A text.
        replacement: What takes their place.

    Returns:
        The text without them.

    Example:
        >>> strip_addresses("Thanks @anna &amp; https://t.co/x").split()
        ['Thanks']
    """
    return ADDRESS.sub(replacement, text)


def find_stopwords(words: Sequence[str]) -> frozenset[str]:
    """Find the stopwords of the language of a text.

    Args:
        words: The text's words, in lower case.

    Returns:
        The list of the language: "ours" for English, and for a text without stopwords.

    Example:
        >>> "el" in find_stopwords("el café está frío".split())
        True
        >>> find_stopwords("the coffee is cold".split()) == load_stopwords()
        True
    """
    english_count = sum(word in load_stopwords("nltk") for word in words)
    if english_count >= CLEAR_ENGLISH_SHARE * len(words):
        return load_stopwords()
    counts = {code: sum(word in _load_list(code) for word in words) for code in _list_codes()}
    code = max(counts, key=lambda code: counts[code])
    return _load_list(code) if counts[code] >= max(MIN_COUNT, english_count + 1) else load_stopwords()


def load_filler_words() -> frozenset[str]:
    """Load English words that are frequent in texts of any subject, such as "please"; a wider list than the stopwords."""
    return _load_list("en")


@lru_cache(maxsize=100_000)
def is_foreign_stopword(word: str) -> bool:
    """Return whether a word with letters beyond ASCII, in lower case, is a stopword of any language."""
    return not word.isascii() and any(word in _load_list(code) for code in _list_codes())


def is_none(answer: str) -> bool:
    """Return whether an answer is the word "none", in any case and punctuation."""
    return NONE_ANSWER.fullmatch(answer) is not None


def find_scripts(text: str) -> frozenset[str]:
    """Find the scripts of the letters of a text; digits, punctuation and symbols have none.

    Args:
        text: A text or a token.

    Returns:
        The first words of the letters' Unicode names; Hiragana and Katakana are one script.

    Example:
        >>> sorted(find_scripts("DVDが2枚 届いた!"))
        ['CJK', 'KANA', 'LATIN']
    """
    return frozenset(filter(None, map(_find_script, set(text))))


@lru_cache(maxsize=100_000)
def _find_script(character: str) -> str | None:
    if unicodedata.category(character)[0] not in "LM":
        return None
    word = unicodedata.name(unicodedata.normalize("NFKC", character)[-1], "").partition(" ")[0]
    return None if word in SCRIPTLESS else SCRIPT_NAMES.get(word, word)


@cache
def _list_codes() -> tuple[str, ...]:
    """List the codes of all languages but English."""
    return tuple(sorted(import_extra("stopwordsiso", "report").langs() - {"en"}))


@cache
def _load_list(code: str) -> frozenset[str]:
    words = import_extra("stopwordsiso", "report").stopwords(code)
    return frozenset(unicodedata.normalize("NFC", word) for word in words)


@cache
def _load_parser(name: str) -> Any:
    return getattr(import_extra("budoux", "report"), f"load_default_{name}_parser")()


def split_answer(answer: str) -> list[str]:
    """Split an answer into its words in lower case, without stopwords unless there are no other words."""
    tokens = answer.casefold().split()
    return [token for token in tokens if token not in load_stopwords()] or tokens
