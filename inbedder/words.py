"""English words: which of them say nothing by themselves."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def stopwords() -> frozenset[str]:
    """The words of ``stopwords_en.txt``, lower case; negations and quantities are not among them."""
    lines = files("inbedder").joinpath("stopwords_en.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
