"""English stopwords."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

StopwordList = Literal["ours", "nltk"]
FILE_NAMES: dict[StopwordList, str] = {"ours": "stopwords_en.txt", "nltk": "stopwords_nltk_en.txt"}


@cache
def load_stopwords(name: StopwordList = "ours") -> frozenset[str]:
    """Load a list of stopwords.

    Args:
        name: "ours" (``stopwords_en.txt``) keeps negations and quantities and holds clitics such as "'s". "nltk"
            (``stopwords_nltk_en.txt``) is NLTK's full English list, which the InBedder paper strips from its answers.

    Returns:
        The words in lower case.
    """
    lines = files("inbedder.prompting").joinpath(FILE_NAMES[name]).read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
