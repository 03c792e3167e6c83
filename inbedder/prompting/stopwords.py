"""English stopwords."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

StopwordList = Literal["ours", "nltk"]
FILE_NAMES: dict[StopwordList, str] = {"ours": "stopwords_en.txt", "nltk": "stopwords_nltk_en.txt"}


@cache
def load_stopwords(name: StopwordList = "ours") -> frozenset[str]:
    """Load "ours", which keeps negations and quantities, or "nltk", the full English list that the paper strips from answers."""
    lines = files("inbedder.prompting").joinpath(FILE_NAMES[name]).read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
