"""The salient words of a text, as the answer to what it is about.

As KeyBERT does (Grootendorst 2020), the words whose vectors are nearest to the text's own: topic words come first, words that
merely are rare do not.
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
from inbedder.prompting.stopwords import stopwords

WORD = re.compile(r"[^\W\d_]{3,}")


def salient_words(texts: Sequence[str], count: int, encoder: str, store: Store | None = None) -> list[str]:
    """The words of each text that are nearest in meaning to the whole of it; of words with one stem only the nearest.

    Args:
        texts: n texts.
        count: At most so many words per text.
        encoder: A sentence-transformers model.
        store: Where its vectors are kept, or None.

    Returns:
        n answers, the nearest word first; empty where a text has no content word.
    """
    from nltk.stem import PorterStemmer

    from inbedder.encoding.reencode import reencode

    distinct = list(dict.fromkeys(texts))
    words = [sorted({word for word in WORD.findall(text.lower()) if word not in stopwords()}) for text in distinct]
    vocabulary = sorted({word for group in words for word in group})
    if not vocabulary:
        return [""] * len(texts)
    place = {word: number for number, word in enumerate(vocabulary)}
    vectors, whole = (
        np.asarray(reencode([(entry,) for entry in group], encoder, store=store)) for group in (vocabulary, distinct)
    )
    stem = PorterStemmer().stem
    found = {}
    for text, group, vector in zip(distinct, words, whole, strict=True):
        near = vectors[[place[word] for word in group]] @ vector
        by_stem: dict[str, str] = {}
        for i in (-near).argsort(kind="stable"):
            by_stem.setdefault(stem(group[i]), group[i])
        found[text] = " ".join(list(by_stem.values())[:count])
    return [found[text] for text in texts]


def kept_words(texts: Sequence[str], count: int, encoder: str, folder: str | None) -> list[str]:
    """``salient_words``, kept on disk.

    Args:
        texts: n texts.
        count: At most so many words per text.
        encoder: A sentence-transformers model.
        folder: Where the words are kept; None keeps none.

    Returns:
        n answers.
    """
    if folder is None:
        return salient_words(texts, count, encoder)
    key = hashlib.sha256(json.dumps([list(texts), count, encoder, Path(__file__).read_text(encoding="utf-8")]).encode())
    path = Path(folder).expanduser() / f"words-{key.hexdigest()[:20]}.json"
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        words = salient_words(texts, count, encoder, Store(path.parent))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(words), encoding="utf-8")
    return words
