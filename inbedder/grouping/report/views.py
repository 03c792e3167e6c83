"""A grouping as the page shows it: its map, and what its groups have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from inbedder.errors import TemplateError
from inbedder.grouping.crosstab import categorize_groups
from inbedder.grouping.partition import Labels
from inbedder.grouping.report import maps
from inbedder.grouping.report.maps import Mark, Points
from inbedder.prompting.templates import resolve_instruction
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

EXAMPLE_TEXT, ANSWER_TEXT = 240, 80
TOP_ANSWERS, TOP_EXAMPLES, TOP_LABELS = 6, 5, 5
SHAPES, GROUPS_PER_SHAPE = 4, 6
# Twelve colours each for light and dark paper: at least 3:1 against it, and apart in OKLab under simulated protanopia,
# deuteranopia and tritanopia (Machado et al. 2009). Dots also change their shape with every GROUPS_PER_SHAPE groups.
LIGHT = "#2f6bd0 #fd5b62 #30a57d #6e2680 #a48018 #75331e #8588ff #bc2993 #566a0a #d075be #2a30b9 #a5585a".split()
DARK = "#6ea2ff #f3b683 #41a87b #c991c3 #a3bc2a #b84007 #7ed2c2 #775bca #b5851a #bd518a #2785ae #357546".split()


@dataclass(frozen=True)
class Group:
    """A cluster as the page shows it."""

    name: str
    colour: int | str
    """Number of its colour; "none" of the texts in no group."""
    shape: int
    size: int
    share: float
    """Percent of all texts."""
    keywords: list[str]
    answers: list[tuple[str, int]]
    examples: list[str]
    head_words: list[str]
    labels: list[tuple[str, list[tuple[str, int, float]], float]]
    """Each column of labels: name, (label, texts, share of the cluster) with the rest as one entry at the end, and entropy."""
    stability: float | None
    """How far it comes back when the texts are drawn again, 0 to 1."""
    badge: tuple[float, float] | None
    """Where its number stands on the map."""


@dataclass(frozen=True, eq=False)
class View:
    """The corpus under one instruction."""

    question: str
    groups: list[Group]
    marks: list[Mark]
    mark_of: Labels
    """Mark of each text, shape (n,)."""
    method: str
    """How the map was made: "t-SNE", "PCA" or "none"."""
    dense: bool
    """Whether the map shows a density instead of dots."""
    v_measures: list[tuple[str, float]]
    """Of each column of labels."""
    notes: list[str]
    """What a reader should know of the groups, in sentences."""
    branches: list[tuple[int, list[int]]]
    """Texts and groups of each branch of the tree; empty without a tree."""


def make_view(result: GroupedTexts) -> View:
    """Prepare a grouping for the page."""
    points, method = maps.project(result.embeddings)
    positions, groups = maps.place_points(points), categorize_groups(result)
    dense = len(positions) > maps.MAX_DOTS
    marks, mark_of = (maps.draw_density if dense else maps.draw_dots)(positions, groups.category_of)
    return View(
        question=resolve_question(result.instruction),
        groups=[_describe_group(result, groups.category_of, number, name, positions) for number, name in enumerate(groups.names)],
        marks=marks,
        mark_of=mark_of,
        method=method,
        dense=dense,
        v_measures=[(column, agreement.v_measure) for column, agreement in result.label_agreements.items()],
        notes=_list_notes(result),
        branches=_list_branches(result),
    )


def _list_notes(result: GroupedTexts) -> list[str]:
    """List notes on the number of groups, the wordings and the groups."""
    notes = [] if result.choice is None else [str(result.choice)]
    if result.wordings:
        notes.append(f"Grouped by the mean over {len(result.wordings)} wordings: {' · '.join(result.wordings)}")
    return [*notes, *result.notes]


def _list_branches(result: GroupedTexts) -> list[tuple[int, list[int]]]:
    """List the texts and groups of each branch, the branch with the most texts first."""
    branch_of = np.array(result.branches or [], dtype=np.int64)
    branches = [np.flatnonzero(branch_of == branch).tolist() for branch in np.unique(branch_of)]
    return sorted(((sum(result.sizes[group] for group in groups), groups) for groups in branches), reverse=True)


def _describe_group(result: GroupedTexts, labels: Labels, number: int, name: str, positions: Points) -> Group:
    members = np.flatnonzero(labels == number)
    is_group = number != result.left_out
    agreements = result.label_agreements if is_group else {}
    return Group(
        name=clip(name, ANSWER_TEXT),
        colour=number % len(LIGHT) if is_group else "none",
        shape=number // GROUPS_PER_SHAPE % SHAPES,
        size=len(members),
        share=100 * len(members) / len(result.texts),
        keywords=[clip(word, ANSWER_TEXT) for word in result.keywords[number]] if is_group else [],
        answers=_count_frequent_answers(result.answers[i] for i in members) if any(result.answers) else [],
        examples=[clip(text, EXAMPLE_TEXT) for text in result.examples[number][:TOP_EXAMPLES]] if is_group else [],
        head_words=list(result.head_words[number]) if is_group and result.head_words else [],
        labels=[(name, _list_label_shares(each.composition[number]), each.entropy[number]) for name, each in agreements.items()],
        stability=result.stability[number] if is_group and result.stability else None,
        badge=maps.find_badge_position(positions[members]) if is_group else None,
    )


def _count_frequent_answers(answers: Iterable[str]) -> list[tuple[str, int]]:
    """Count the most frequent answers, ignoring case, in the spelling that came first."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for answer in answers:
        shown = clip(answer, ANSWER_TEXT) or "(no answer)"
        counts[shown.casefold()] += 1
        spelling.setdefault(shown.casefold(), shown)
    return [(spelling[key], count) for key, count in counts.most_common(TOP_ANSWERS)]


def _list_label_shares(composition: dict[str, int]) -> list[tuple[str, int, float]]:
    total = sum(composition.values())
    entries = sorted(((clip(label, ANSWER_TEXT), count) for label, count in composition.items()), key=lambda e: -e[1])
    if len(entries) > TOP_LABELS + 1:
        rare = entries[TOP_LABELS:]
        entries = [*entries[:TOP_LABELS], (f"{len(rare)} others", sum(count for _, count in rare))]
    return [(label, count, 100 * count / total) for label, count in entries]


def resolve_question(instruction: str) -> str:
    """Resolve a named instruction to its question; an unknown name stays."""
    try:
        return resolve_instruction(instruction)
    except TemplateError:
        return instruction


def clip(text: str, limit: int) -> str:
    """Clip a text to one line of at most ``limit`` characters that encodes as UTF-8, with an ellipsis where it was cut."""
    line = " ".join(clean_text(text[: 8 * limit]).split())
    return line if len(line) <= limit and len(text) <= 8 * limit else line[: limit - 1].rstrip() + "…"
