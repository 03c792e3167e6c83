"""Names of groups: one to three phrases that many of a group's answers and texts hold, and few of the other groups'.

Words are counted by their stem, once per text, so that inflections are one word. A word's score is the share of the group's
answers that hold it, times the logarithm of how much larger that share is than among all answers, plus half of the same for the
texts. A word that few of the group's answers and texts hold is in no name, and neither is one that most texts hold as a stopword
of their language or as the name of a user (@anna). Where most texts with a word hold it in one pair of
words, the pair takes its place. Phrases are written as the texts and answers write them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any

from inbedder.errors import import_extra
from inbedder.prompting.stopwords import load_stopwords
from inbedder.prompting.words import MARKUP_WORDS, find_stopwords, is_foreign_stopword, split_spaceless, strip_addresses

if TYPE_CHECKING:
    from inbedder.grouping.names.group_contents import GroupContents

USER = re.compile(r"(?<!\w)@(\w+)")
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
MAX_CHARACTERS = 2000
"""Number of characters of a text that count."""
MIN_SHARE, MIN_ROWS = 0.1, 2
"""Minimum share and number of a group's answers, or of its texts, that hold a word of its name."""
TEXT_WEIGHT = 0.5
"""Weight of the texts' words; that of the answers' words is 1."""
MIN_PAIR_SHARE = 0.5
"""Minimum share of a word's rows that hold it in one pair of words."""
MIN_RELATIVE_SCORE = 1 / 3
"""Minimum score of a further phrase, relative to the first."""
FULL_COVERAGE = 0.6
"""Share of a group's answers or texts from which no further phrase is added."""
MAX_PHRASES, MAX_RANKED_PHRASES = 3, 6
"""Maximum number of phrases in a name, and of those that set equal names apart."""
SWEAR_STEMS = frozenset(
    "ass asshol bastard bitch bullshit crap cunt damn dick fuck fucker motherfuck piss shit shitti slut whore".split()
)
"""Stems that are in a name only if half of the group's texts hold them."""
OTHER_NAMELESS_WORDS = frozenset("n't n’t like two three four five six seven eight nine ten".split())
"""Words besides the stopwords that say nothing in a name; texts that were tokenized hold "n't"."""
NO_WORD, START = "", "."
"""Placeholders between the words of a line: for stopwords, and for its start and punctuation."""


def name_by_phrases(groups: Sequence[GroupContents]) -> list[str]:
    """Name each group by its phrases.

    Args:
        groups: k groups.

    Returns:
        k names, none of whose phrases are all in another name where further phrases can distinguish them; empty for a group
        without a fitting word.
    """
    wordings = [_GroupWords(group) for group in groups]
    totals = [_Totals([words.sides[side] for words in wordings]) for side in (0, 1)]
    phrases = [words.rank_phrases(totals) for words in wordings]
    counts = [words.count_needed_phrases() for words in wordings]
    while True:
        phrase_sets = [set(ranked[:count]) for ranked, count in zip(phrases, counts, strict=True)]
        unclear = [
            i for i, own_set in enumerate(phrase_sets) if any(own_set <= each for j, each in enumerate(phrase_sets) if j != i)
        ]
        extensible = [i for i in unclear if counts[i] < len(phrases[i])]
        if not extensible:
            return [", ".join(ranked[:count]) for ranked, count in zip(phrases, counts, strict=True)]
        for i in extensible:
            counts[i] += 1


@lru_cache(maxsize=100_000)
def compute_stem(word: str) -> str:
    """Stem an English word; other words come back in lower case."""
    return str(_load_stemmer().stemWord(word.lower()))


@lru_cache(maxsize=1)
def _load_stemmer() -> Any:
    return import_extra("snowballstemmer", "report").stemmer("english")


def split_line(text: str) -> list[str]:
    """Split a text into its words, with placeholders for what lies between them."""
    return _split_line(text)[0]


def _split_line(text: str) -> tuple[list[str], frozenset[str]]:
    """Split a text into its words, and find the stopwords and names of users, in lower case, that have placeholders."""
    users = [user.lower() for user in USER.findall(text)]
    text = strip_addresses(text, f" {START} ")
    words, end = [START], 0
    for match in WORD.finditer(text):
        if text[end : match.start()].strip():
            words.append(START)
        words += split_spaceless(match[0])
        end = match.end()
    stopwords = find_stopwords([word.lower() for word in words if word != START])
    nameless = frozenset(word for word in map(str.lower, words) if _is_nameless(word, stopwords))
    line = [NO_WORD if (len(word) < 2 and word != START) or word.lower() in nameless else word for word in words]
    return line, nameless.union(users)


def _is_nameless(word: str, stopwords: frozenset[str]) -> bool:
    """Return whether a word, in lower case, says nothing in a name."""
    is_english_stopword = word in load_stopwords("nltk") or word in OTHER_NAMELESS_WORDS or word in MARKUP_WORDS
    return word in stopwords or is_english_stopword or is_foreign_stopword(word)


class _Lines:
    """The answers of a group, or its texts, with the counts of their stems, each once per line."""

    def __init__(self, texts: Iterable[str]) -> None:
        pairs = [_split_line(text[:MAX_CHARACTERS]) for text in texts if text.strip()]
        self.lines = [line for line, _ in pairs]
        self.nameless_counts = Counter(compute_stem(word) for _, nameless in pairs for word in nameless)
        self.stems = [frozenset(compute_stem(word) for word in line if len(word) > 1) for line in self.lines]
        self.counts = Counter(stem for stems in self.stems for stem in stems)
        self.pair_counts = Counter(pair for line in self.lines for pair in _list_pairs(line))
        self.size = len(self.lines)

    def share(self, stem: str) -> float:
        """Compute the share of lines that hold a stem."""
        return self.counts[stem] / max(1, self.size)


def _list_pairs(line: Sequence[str]) -> set[tuple[str, str]]:
    """List the stems of different words that follow each other."""
    stems = [compute_stem(word) if len(word) > 1 else "" for word in line]
    return {(first, second) for first, second in pairwise(stems) if first and second and first != second}


class _Totals:
    """The counts of the stems of all groups."""

    def __init__(self, lines: Sequence[_Lines]) -> None:
        self.size = sum(each.size for each in lines)
        self.counts: Counter[str] = Counter()
        self.nameless_counts: Counter[str] = Counter()
        for each in lines:
            self.counts.update(each.counts)
            self.nameless_counts.update(each.nameless_counts)

    def is_nameless(self, stem: str) -> bool:
        """Return whether at least half of the lines with a stem hold it as a stopword or as the name of a user."""
        return 0 < self.counts[stem] + self.nameless_counts[stem] <= 2 * self.nameless_counts[stem]


class _GroupWords:
    """The words of one group."""

    def __init__(self, group: GroupContents) -> None:
        self.sides = (_Lines(group.answers), _Lines(group.texts))

    def rank_phrases(self, totals: Sequence[_Totals]) -> list[str]:
        """Rank phrases, the most characteristic first; those that other groups hold as often are left out, unless all are so."""
        stems = {
            stem for side in self.sides for stem in side.counts if self._is_supported(stem) and not totals[1].is_nameless(stem)
        }
        stems = {stem for stem in stems if not any(longer != stem and longer.startswith(stem) for longer in stems)}  # fragments
        scores = {stem: self._score(stem, totals) for stem in stems}
        self.phrases: list[tuple[str, ...]] = []
        self.good_count = 0
        for stem in sorted(stems, key=lambda stem: (-scores[stem], stem)):
            if self.phrases and (len(self.phrases) == MAX_RANKED_PHRASES or scores[stem] <= 0):
                break
            if not any(stem in phrase for phrase in self.phrases):
                self.phrases.append(self._extend(stem, stems.difference(*self.phrases)))
                self.good_count += scores[stem] >= MIN_RELATIVE_SCORE * max(scores.values())
        return [" ".join(map(self._write_stem, phrase)) for phrase in self.phrases]

    def count_needed_phrases(self) -> int:
        """Count the phrases after which most answers or texts hold one."""
        max_count = min(self.good_count, MAX_PHRASES)
        for count in range(1, max_count):
            phrase_sets = [set(phrase) for phrase in self.phrases[:count]]
            covered_counts = (sum(any(phrase <= stems for phrase in phrase_sets) for stems in side.stems) for side in self.sides)
            if any(
                covered >= FULL_COVERAGE * max(1, side.size) for covered, side in zip(covered_counts, self.sides, strict=True)
            ):
                return count
        return max_count

    def _score(self, stem: str, totals: Sequence[_Totals]) -> float:
        score = 0.0
        for side, total, weight in zip(self.sides, totals, (1.0, TEXT_WEIGHT), strict=True):
            if share := side.share(stem):
                score += weight * share * log(share * total.size / total.counts[stem])
        return score

    def _is_supported(self, stem: str) -> bool:
        """Return whether enough answers or texts hold a stem."""
        if stem in SWEAR_STEMS and self.sides[1].share(stem) < 0.5:
            return False
        return any(side.counts[stem] >= max(MIN_ROWS, MIN_SHARE * side.size) for side in self.sides)

    def _extend(self, stem: str, stems: set[str]) -> tuple[str, ...]:
        """Replace a stem by the pair of words that holds most of its rows, if one does."""
        for side in self.sides:
            pairs = [(count, pair) for pair, count in side.pair_counts.items() if stem in pair and stems >= set(pair)]
            if pairs and max(pairs)[0] >= max(MIN_ROWS, MIN_PAIR_SHARE * side.counts[stem]):
                return max(pairs)[1]
        return (stem,)

    def _write_stem(self, stem: str) -> str:
        """Write a stem as most texts and answers write it, with the capitals that it has inside of sentences."""
        forms: Counter[str] = Counter()
        spellings: Counter[str] = Counter()
        for side in self.sides:
            for line, stems in zip(side.lines, side.stems, strict=True):
                if stem in stems:
                    for before, word in pairwise(line):
                        if len(word) > 1 and compute_stem(word) == stem:
                            forms[word.lower()] += 1
                            spellings[word.lower() if before == START else word] += 1
        form = forms.most_common(1)[0][0]
        return next(spelling for spelling, _ in spellings.most_common() if spelling.lower() == form)
