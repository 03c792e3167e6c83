"""English words: which of them say nothing by themselves."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

StopwordList = Literal["ours", "nltk"]
FILES: dict[StopwordList, str] = {"ours": "stopwords_en.txt", "nltk": "stopwords_nltk_en.txt"}


@cache
def stopwords(which: StopwordList = "ours") -> frozenset[str]:
    """A list of stopwords.

    Args:
        which: "ours" (``stopwords_en.txt``), without negations and quantities but with clitics such as "'s"; or "nltk"
            (``stopwords_nltk_en.txt``), the whole English list of NLTK, which the InBedder paper's answers were stripped of.

    Returns:
        Its words, lower case.
    """
    lines = files("inbedder").joinpath(FILES[which]).read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
