"""Salient words of a text, as the answer to what it is about.

They are the words whose vectors are nearest to the vector of the text, as in KeyBERT (Grootendorst 2020). Topic words come first;
words that are merely rare do not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inbedder.cache.store import Store
from inbedder.io.files import atomic_write
from inbedder.prompting.stopwords import load_stopwords

WORD = re.compile(r"[^\W\d_]{3,}")


def find_salient_words(texts: Sequence[str], count: int, encoder: str, store: Store | None = None) -> list[str]:
    """Find the words of each text that are nearest in meaning to the text, one word per stem.

    Args:
        texts: n texts.
        count: Maximum number of words per text.
        encoder: A sentence-transformers model.
        store: Cache of the encoder's vectors, or None.

    Returns:
        n strings of words, the nearest word first; empty for a text without content words.
    """
    from nltk.stem import PorterStemmer

    from inbedder.encoding.reencode import reencode

    distinct = list(dict.fromkeys(texts))
    words = [sorted({word for word in WORD.findall(text.lower()) if word not in load_stopwords()}) for text in distinct]
    vocabulary = sorted({word for group in words for word in group})
    if not vocabulary:
        return [""] * len(texts)
    index_by_word = {word: index for index, word in enumerate(vocabulary)}
    word_vectors, text_vectors = (
        np.asarray(reencode([(entry,) for entry in group], encoder, store=store)) for group in (vocabulary, distinct)
    )
    stem = PorterStemmer().stem
    words_by_text = {}
    for text, group, vector in zip(distinct, words, text_vectors, strict=True):
        cosines = word_vectors[[index_by_word[word] for word in group]] @ vector
        word_by_stem: dict[str, str] = {}
        for i in (-cosines).argsort(kind="stable"):
            word_by_stem.setdefault(stem(group[i]), group[i])
        words_by_text[text] = " ".join(list(word_by_stem.values())[:count])
    return [words_by_text[text] for text in texts]


def cache_salient_words(texts: Sequence[str], count: int, encoder: str, folder: str | None) -> list[str]:
    """Find salient words, and cache them on disk.

    Args:
        texts: n texts.
        count: Maximum number of words per text.
        encoder: A sentence-transformers model.
        folder: Folder of the cache; None caches nothing.

    Returns:
        n strings of words.
    """
    if folder is None:
        return find_salient_words(texts, count, encoder)
    key = hashlib.sha256(json.dumps([list(texts), count, encoder, Path(__file__).read_text(encoding="utf-8")]).encode())
    path = Path(folder) / f"words-{key.hexdigest()[:20]}.json"
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        words = find_salient_words(texts, count, encoder, Store(path.parent))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(words), encoding="utf-8")
    return words
