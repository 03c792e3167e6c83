"""Names of groups: one or two phrases that many of a group's answers and texts hold, and few of the other groups'.

Words are counted by their stem, once per text, so that inflections are one word. A word's score is the share of the group's
answers that hold it, times the logarithm of how much larger that share is than among all answers, plus half of the same for the
texts. A word that few of the group's answers and texts hold is in no name, and neither is one that most texts hold as a stopword
of their language or as the name of a user (@anna). Two words of one answer, or two neighbours in texts, score as a word does; the
best such pair replaces a word if it scores nearly as high. Phrases are written as the texts and answers write them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from math import log
from typing import TYPE_CHECKING, Any

from inbedder.errors import import_extra
from inbedder.prompting.stopwords import load_stopwords
from inbedder.prompting.words import (
    MARKUP_WORDS,
    find_stopwords,
    is_foreign_stopword,
    load_filler_words,
    split_spaceless,
    strip_addresses,
)

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
MIN_PAIR_SHARE = 0.25
"""Minimum share of a word's answers, or of its texts, that hold it in one pair of words."""
MAX_PAIRED_WORDS = 4
"""Maximum number of words of an answer any two of which are a pair."""
MIN_RELATIVE_SCORE = 1 / 3
"""Minimum score of a further phrase, relative to the first, and of a pair of words, relative to its word."""
FULL_COVERAGE = 0.6
"""Share of a group's answers or texts from which no further phrase is added."""
MIN_CAPITALIZED_SHARE, MIN_CAPITALIZED_TOTAL = 0.9, 2 / 3
"""Minimum share of a proper noun's occurrences that are capitalized: inside of sentences, and with the answers."""
MAX_PHRASES, MAX_RANKED_PHRASES = 2, 6
"""Maximum number of phrases in a name, and of those that set equal names apart."""
SWEAR_STEMS = frozenset(
    "ass asshol bastard bitch bullshit crap cunt damn dick fuck fucker motherfuck piss shit shitti slut whore".split()
)
"""Stems that are in a name only if half of the group's texts hold them."""
OTHER_NAMELESS_WORDS = frozenset("n't n’t like two three four five six seven eight nine ten".split())
"""Words besides the stopwords that say nothing in a name; texts that were tokenized hold "n't"."""
Phrase = frozenset[str]
"""The stems of one or two words."""
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
            return [words.write(ranked[:count]) for words, ranked, count in zip(wordings, phrases, counts, strict=True)]
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
    return _split_line(text, is_answer=True)[0]


def _split_line(text: str, is_answer: bool) -> tuple[list[str], frozenset[str]]:
    """Split an answer or a text into its words, and find the stopwords and names of users, in lower case, that have placeholders.

    A text has placeholders for filler words, too, such as "please" and "today", which say something only as an answer.
    """
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
    fillers = load_filler_words() if not is_answer and stopwords is load_stopwords() else frozenset()
    dropped = nameless | fillers
    line = [NO_WORD if (len(word) < 2 and word != START) or word.lower() in dropped else word for word in words]
    return line, nameless.union(users)


def _is_nameless(word: str, stopwords: frozenset[str]) -> bool:
    """Return whether a word, in lower case, says nothing in a name."""
    is_english_stopword = word in load_stopwords("nltk") or word in OTHER_NAMELESS_WORDS or word in MARKUP_WORDS
    return word in stopwords or is_english_stopword or is_foreign_stopword(word)


class _Lines:
    """The answers of a group, or its texts, with the counts of their stems, each once per line."""

    def __init__(self, texts: Iterable[str], *, are_answers: bool) -> None:
        split_lines = [_split_line(text[:MAX_CHARACTERS], are_answers) for text in texts if text.strip()]
        self.lines = [line for line, _ in split_lines]
        self.nameless_counts = Counter(compute_stem(word) for _, nameless in split_lines for word in nameless)
        self.stems = [frozenset(compute_stem(word) for word in line if len(word) > 1) for line in self.lines]
        neighbours = [_list_neighbours(line) for line in self.lines]
        self.order_counts: Counter[tuple[str, ...]] = Counter(pair for pairs in neighbours for pair in pairs)
        self.counts: Counter[Phrase] = Counter(frozenset([stem]) for stems in self.stems for stem in stems)
        for stems, pairs in zip(self.stems, neighbours, strict=True):
            is_short = are_answers and len(stems) <= MAX_PAIRED_WORDS
            self.counts.update({frozenset(pair) for pair in (combinations(stems, 2) if is_short else pairs)})
        self.size = len(self.lines)

    def share(self, phrase: Phrase) -> float:
        """Compute the share of lines that hold a phrase."""
        return self.counts[phrase] / max(1, self.size)


def _list_neighbours(line: Sequence[str]) -> set[tuple[str, str]]:
    """List the stems of different words that follow each other."""
    stems = [compute_stem(word) if len(word) > 1 else "" for word in line]
    return {(first, second) for first, second in pairwise(stems) if first and second and first != second}


class _Totals:
    """The counts of the stems of all groups."""

    def __init__(self, lines: Sequence[_Lines]) -> None:
        self.size = sum(each.size for each in lines)
        self.counts: Counter[Phrase] = Counter()
        self.nameless_counts: Counter[str] = Counter()
        for each in lines:
            self.counts.update(each.counts)
            self.nameless_counts.update(each.nameless_counts)

    def is_nameless(self, stem: str) -> bool:
        """Return whether at least half of the lines with a stem hold it as a stopword or as the name of a user."""
        return 0 < self.counts[frozenset([stem])] + self.nameless_counts[stem] <= 2 * self.nameless_counts[stem]


class _GroupWords:
    """The words of one group."""

    def __init__(self, group: GroupContents) -> None:
        self.sides = (_Lines(group.answers, are_answers=True), _Lines(group.texts, are_answers=False))

    def rank_phrases(self, totals: Sequence[_Totals]) -> list[Phrase]:
        """Rank phrases, the most characteristic first; those that other groups hold as often are left out, unless all are so."""
        stems = {
            stem for side in self.sides for word in side.counts if len(word) == 1 and self._is_supported(word) for stem in word
        }
        stems = {stem for stem in stems if not totals[1].is_nameless(stem)}
        stems = {stem for stem in stems if not any(longer != stem and longer.startswith(stem) for longer in stems)}  # fragments
        scores = {frozenset([stem]): self._score(frozenset([stem]), totals) for stem in stems}
        words = sorted(scores, key=lambda word: (-scores[word], *word))
        self.phrases: list[Phrase] = []
        self.good_count = 0
        for word in words:
            if self.phrases and (len(self.phrases) == MAX_RANKED_PHRASES or scores[word] <= 0):
                break
            used_stems = frozenset[str]().union(*self.phrases)
            if word <= used_stems:
                continue
            free_words = [each for each in words if each != word and not each <= used_stems]
            pairs = [word | each for each in free_words if self._is_pair(word, each)]
            best = max(pairs, key=lambda pair: self._score(pair, totals), default=word)
            is_as_good = self._score(best, totals) >= MIN_RELATIVE_SCORE * scores[word]
            self.phrases.append(best if is_as_good else word)
            self.good_count += scores[word] >= MIN_RELATIVE_SCORE * scores[words[0]]
        return self.phrases

    def write(self, phrases: Sequence[Phrase]) -> str:
        """Write phrases as texts and answers write them; two words that are a pair become one phrase."""
        joined: list[Phrase] = []
        for phrase in phrases:
            if joined and len(phrase) == 1 and self._is_pair(joined[-1], phrase):
                joined[-1] |= phrase
            else:
                joined.append(phrase)
        return ", ".join(" ".join(map(self._write_stem, self._order(phrase))) for phrase in joined)

    def count_needed_phrases(self) -> int:
        """Count the phrases after which most answers or texts hold one."""
        max_count = min(self.good_count, MAX_PHRASES)
        for count in range(1, max_count):
            phrases = self.phrases[:count]
            covered_counts = (sum(any(phrase <= stems for phrase in phrases) for stems in side.stems) for side in self.sides)
            if any(
                covered >= FULL_COVERAGE * max(1, side.size) for covered, side in zip(covered_counts, self.sides, strict=True)
            ):
                return count
        return max_count

    def _score(self, phrase: Phrase, totals: Sequence[_Totals]) -> float:
        score = 0.0
        for side, total, weight in zip(self.sides, totals, (1.0, TEXT_WEIGHT), strict=True):
            if share := side.share(phrase):
                score += weight * share * log(share * total.size / total.counts[phrase])
        return score

    def _is_supported(self, phrase: Phrase) -> bool:
        """Return whether enough answers or texts hold a phrase."""
        if not SWEAR_STEMS.isdisjoint(phrase) and self.sides[1].share(phrase) < 0.5:
            return False
        return any(side.counts[phrase] >= max(MIN_ROWS, MIN_SHARE * side.size) for side in self.sides)

    def _is_pair(self, word: Phrase, second_word: Phrase) -> bool:
        """Return whether many answers or texts, of the group or of those with a word, hold it in a pair with another word."""
        return len(word) == 1 and any(
            side.counts[word | second_word] >= max(MIN_ROWS, min(MIN_SHARE * side.size, MIN_PAIR_SHARE * side.counts[word]))
            for side in self.sides
        )

    def _order(self, phrase: Phrase) -> tuple[str, ...]:
        """Order the stems of a phrase as most texts and answers do."""
        stems = tuple(sorted(phrase))
        if len(stems) == 1:
            return stems
        order_counts = self.sides[0].order_counts + self.sides[1].order_counts
        return max((stems, stems[::-1]), key=lambda pair: order_counts[pair])

    def _write_stem(self, stem: str) -> str:
        """Write a stem as most texts and answers write it, in lower case unless it is a proper noun.

        That is one that the texts capitalize throughout, inside of sentences and in all its forms, and that most answers and
        texts together do: many models answer in lower case, but a common word is in more answers than texts.
        """
        forms: Counter[str] = Counter()
        spellings: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for side, counts in zip(self.sides, spellings, strict=True):
            for line, stems in zip(side.lines, side.stems, strict=True):
                if stem in stems:
                    for before, word in pairwise(line):
                        if len(word) > 1 and compute_stem(word) == stem:
                            forms[word.lower()] += 1
                            if before != START or side is self.sides[0]:  # models answer without a capital at the start
                                counts[word] += 1
        form = forms.most_common(1)[0][0]
        is_proper = all(
            _count_capitalized(counts) >= share * counts.total()
            for counts, share in ((spellings[1], MIN_CAPITALIZED_SHARE), (spellings[0] + spellings[1], MIN_CAPITALIZED_TOTAL))
        )
        return next((each for each, _ in (spellings[1] + spellings[0]).most_common() if is_proper and each.lower() == form), form)


def _count_capitalized(spellings: Counter[str]) -> int:
    return sum(count for spelling, count in spellings.items() if spelling != spelling.lower())
