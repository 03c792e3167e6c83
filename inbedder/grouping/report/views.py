"""The view of a grouping: its map and its groups as the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from inbedder.grouping.compare.crosstab import categorize_groups
from inbedder.grouping.describe.loose_groups import describe_loose_mark, explain_loose_group
from inbedder.grouping.grouped_texts import resolve_question
from inbedder.grouping.names.naming import collect_contents
from inbedder.grouping.names.phrase_names import name_by_phrases
from inbedder.grouping.partition.between import find_second_groups
from inbedder.grouping.report import maps
from inbedder.grouping.report.maps import Mark, Points
from inbedder.prompting.tokenization import clean_text
from inbedder.vectors.vectors import Labels

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

MAX_EXAMPLE_CHARACTERS, MAX_ANSWER_CHARACTERS = 240, 80
MAX_ANSWERS, MAX_EXAMPLES, MAX_LABELS = 6, 5, 5
"""Maximum numbers of entries that a group shows."""
SHAPES, GROUPS_PER_SHAPE = 4, 6
NO_COLOUR = "none"
"""Colour of the texts that fit no group, and of rare values."""
# Twelve colours each for a light and a dark background: a contrast of at least 3:1, and distinct in OKLab under simulated
# protanopia, deuteranopia and tritanopia (Machado et al. 2009). The shape of the dots changes every GROUPS_PER_SHAPE groups.
LIGHT = "#2f6bd0 #fd5b62 #30a57d #6e2680 #a48018 #75331e #8588ff #bc2993 #566a0a #d075be #2a30b9 #a5585a".split()
DARK = "#6ea2ff #f3b683 #41a87b #c991c3 #a3bc2a #b84007 #7ed2c2 #775bca #b5851a #bd518a #2785ae #357546".split()


@dataclass(frozen=True)
class Group:
    """A group as the page shows it."""

    name: str
    colour: int | str
    """Number of its colour, or ``NO_COLOUR``."""
    shape: int
    size: int
    share: float
    """Share of all texts in percent."""
    keywords: list[str]
    answers: list[tuple[str, int]]
    examples: list[list[tuple[str, bool]]]
    """Each example as pieces, and whether its answer rests on the piece."""
    labels: list[tuple[str, list[tuple[str, int, float]], float]]
    """Of each label column: name, (label, texts, percent of the group) with rare labels as one last entry, entropy in bits."""
    looseness: str
    """Why it is a loose group; empty if it is not."""
    badge: tuple[float, float] | None
    """Position of its number on the map."""
    branch: int
    """Number of its branch of the outline, from 0."""


class Branch(NamedTuple):
    """A branch of the outline as the page shows it."""

    name: str
    share: float
    """Share of all texts in percent."""


@dataclass(frozen=True, eq=False)
class View:
    """A corpus under one instruction."""

    question: str
    unit: str
    """What a group is called: "group" or "category"."""
    groups: list[Group]
    marks: list[Mark]
    mark_of: Labels
    """Mark of each text, shape (n,)."""
    method: str
    """Method of the map: "t-SNE", "PCA" or "none"."""
    dense: bool
    """Whether the map shows densities instead of dots."""
    v_measures: list[tuple[str, float]]
    """Name and V-measure of each label column."""
    notes: list[str]
    """Sentences about the groups for the reader."""
    details: list[str]
    """Sentences on how the groups were made, which the page folds."""
    branches: list[Branch]
    """The branches of the outline, the largest first; empty without an outline."""
    second_groups: Labels
    """Group to which the answer of each text between two groups belongs, shape (n,); -1 for the rest of the texts."""


def make_views(results: Sequence[GroupedTexts]) -> list[View]:
    """Prepare groupings of the same texts for the page, with maps that are turned alike."""
    exact = any(result.is_exact for result in results)
    layouts = maps.place_texts([result.embeddings for result in results], exact=exact)
    return [_make_view(result, *layout) for result, layout in zip(results, layouts, strict=True)]


def _make_view(result: GroupedTexts, positions: Points, method: str) -> View:
    groups = categorize_groups(result)
    dense = len(positions) > maps.MAX_DOTS
    second_groups = find_second_groups(result.embeddings, result.group_labels, result.answers)
    marks, mark_of = (maps.draw_density if dense else maps.draw_dots)(positions, groups.category_of)
    return View(
        question=resolve_question(result.instruction),
        unit=result.unit,
        groups=[_describe_group(result, groups.category_of, number, name, positions) for number, name in enumerate(groups.names)],
        marks=marks,
        mark_of=mark_of,
        method=method,
        dense=dense,
        v_measures=[(column, agreement.v_measure) for column, agreement in result.label_agreements.items()],
        notes=_list_notes(result),
        details=_list_details(result, second_groups),
        branches=_list_branches(result),
        second_groups=second_groups,
    )


def _list_notes(result: GroupedTexts) -> list[str]:
    """List notes on the groups."""
    is_any_loose = any(explain_loose_group(result, number) for number in range(len(result.names)))
    return [*result.notes, *([describe_loose_mark(result)] if is_any_loose else [])]


def _list_details(result: GroupedTexts, second_groups: Labels) -> list[str]:
    """List notes on the number of groups, the texts between groups and the wordings."""
    details = [] if result.choice is None else [str(result.choice)]
    if share := float((second_groups >= 0).mean()):
        plural = "groups" if result.unit == "group" else "categories"
        details.append(f"{share:.1%} of the texts lie between two {plural}: their answers belong to another one.")
    if result.wordings:
        details.append(f"Grouped by the mean over {len(result.wordings)} wordings: {' · '.join(result.wordings)}")
    return details


def _list_branches(result: GroupedTexts) -> list[Branch]:
    """List the branches of the outline, and name each by the answers and texts of its groups."""
    if result.branches is None:
        return []
    rows = np.flatnonzero(result.labels < len(result.branches))  # not those that fit no group
    labels = np.array(result.branches)[result.labels[rows]]
    texts, answers = ([column[row] for row in rows.tolist()] for column in (result.texts, result.answers))
    count = int(labels.max()) + 1
    names = name_by_phrases(collect_contents(texts, answers, result.embeddings[rows], labels, [[]] * count))
    shares = 100 * np.bincount(labels) / len(result.labels)
    return [
        Branch(clip(name or result.names[result.branches.index(branch)], MAX_ANSWER_CHARACTERS), float(shares[branch]))
        for branch, name in enumerate(names)
    ]


def _describe_group(result: GroupedTexts, labels: Labels, number: int, name: str, positions: Points) -> Group:
    members = np.flatnonzero(labels == number)
    is_group = result.is_group(number)
    agreements, branches = result.label_agreements if is_group else {}, result.branches or []
    return Group(
        name=clip(name, MAX_ANSWER_CHARACTERS),
        colour=number % len(LIGHT) if is_group else NO_COLOUR,
        shape=number // GROUPS_PER_SHAPE % SHAPES,
        size=len(members),
        share=100 * len(members) / len(result.texts),
        keywords=_list_keywords(result, number) if is_group else [],
        answers=_count_frequent_answers(result.answers[i] for i in members) if any(result.answers) else [],
        examples=_cut_examples(result, number) if is_group else [],
        labels=[(name, _list_label_shares(each.composition[number]), each.entropy[number]) for name, each in agreements.items()],
        looseness=explain_loose_group(result, number),
        badge=maps.find_badge_position(positions[members]) if is_group else None,
        branch=branches[number] if number < len(branches) else number,
    )


def _list_keywords(result: GroupedTexts, number: int) -> list[str]:
    """List the words of a group without answers, which show more."""
    return [] if any(result.answers) else [clip(word, MAX_ANSWER_CHARACTERS) for word in result.keywords[number]]


def _cut_examples(result: GroupedTexts, number: int) -> list[list[tuple[str, bool]]]:
    """Cut the examples of a group into pieces that its answers do and do not rest on."""
    examples = result.examples[number][:MAX_EXAMPLES]
    spans = [[]] * len(examples) if result.evidence is None else result.evidence[number]
    return [cut_pieces(text, text_spans) for text, text_spans in zip(examples, spans, strict=False)]


def cut_pieces(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Cut an example into pieces inside and outside of spans; a long one is clipped.

    Args:
        text: The example.
        spans: Start and end of words, in order.

    Returns:
        Pieces, and whether each is a span. Without spans the clipped text is the only piece.
    """
    visible_spans = [span for span in spans if span[1] < MAX_EXAMPLE_CHARACTERS]
    if not visible_spans:
        return [(clip(text, MAX_EXAMPLE_CHARACTERS), False)]
    pieces, position = [], 0
    for start, end in visible_spans:
        pieces += [(text[position:start], False), (text[start:end], True)]
        position = end
    return [*((clean_text(piece), is_span) for piece, is_span in pieces if piece), (clip_end(text[position:], position), False)]


def clip_end(text: str, position: int) -> str:
    """Clip the end of an example that begins at a position."""
    limit = MAX_EXAMPLE_CHARACTERS - position
    line = clean_text(text[:limit]).rstrip()
    return line + "…" if len(text) > limit else line


def _count_frequent_answers(answers: Iterable[str]) -> list[tuple[str, int]]:
    """Count the most frequent answers, ignoring case; keep the spelling that comes first."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for answer in answers:
        clipped_answer = clip(answer, MAX_ANSWER_CHARACTERS) or "(no answer)"
        counts[clipped_answer.casefold()] += 1
        spelling.setdefault(clipped_answer.casefold(), clipped_answer)
    return [(spelling[key], count) for key, count in counts.most_common(MAX_ANSWERS)]


def _list_label_shares(composition: dict[str, int]) -> list[tuple[str, int, float]]:
    total = sum(composition.values())
    entries = sorted(((clip(label, MAX_ANSWER_CHARACTERS), count) for label, count in composition.items()), key=lambda e: -e[1])
    if len(entries) > MAX_LABELS + 1:
        rare = entries[MAX_LABELS:]
        entries = [*entries[:MAX_LABELS], (f"{len(rare)} others", sum(count for _, count in rare))]
    return [(label, count, 100 * count / total) for label, count in entries]


def clip(text: str, limit: int) -> str:
    """Clip a text to one line of at most ``limit`` characters that encodes as UTF-8; an ellipsis marks the cut."""
    line = " ".join(clean_text(text[: 8 * limit]).split())
    return line if len(line) <= limit and len(text) <= 8 * limit else line[: limit - 1].rstrip() + "…"
