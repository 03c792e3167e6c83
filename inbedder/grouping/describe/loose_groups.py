"""Loose groups: groups whose answers differ, or that do not reappear when the texts are resampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbedder.grouping.partition.stability import MAX_SHAKY, describe_stability

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.names.group_contents import GroupContents

LOOSE_MARK = "\u2248"
"""An almost-equal sign."""
LOOSE_NOTE = (
    f"{LOOSE_MARK} marks loose groups: their answers differ, or other groups form when the texts are resampled. "
    "Read some of their texts before you rely on them."
)
"""What loose groups are, in the words of the page and the terminal."""
LOOSE_CATEGORY_NOTE = (
    f"{LOOSE_MARK} marks loose categories: their answers differ. Read some of their texts before you rely on them."
)


def is_mixed(group: GroupContents) -> bool:
    """Return whether the answers of a group are too different for one name.

    Args:
        group: The group.

    Returns:
        True if fewer than half of its answers contain one of its first three keywords, and no word occurs in half of them;
        False if there are no answers.
    """
    return group.has_answers and not group.has_fitting_keywords and not group.common_words


def describe_loose_mark(result: GroupedTexts) -> str:
    """Describe what the mark of loose groups says; categories of the user are not measured by resampling."""
    return LOOSE_NOTE if result.unit == "group" else LOOSE_CATEGORY_NOTE


def explain_loose_group(result: GroupedTexts, number: int) -> str:
    """Explain why a group is loose.

    Args:
        result: The grouping.
        number: Number of the group, from 0.

    Returns:
        The reasons in one sentence; empty for a group that is not loose, and for the texts that fit no group.
    """
    if not result.is_group(number):
        return ""
    reasons = ["its answers differ"] if result.mixed and result.mixed[number] else []
    if result.stability is not None and describe_stability(result.stability[number]) == "shaky":
        reasons.append(
            f"other groups form when the texts are resampled (stability {result.stability[number]:.2f}, below {MAX_SHAKY})"
        )
    return f"Loose: {', and '.join(reasons)}." if reasons else ""
