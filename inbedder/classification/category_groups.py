"""The categories of texts as groups, for the report, cross tables and timelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from inbedder.classification.category_result import NOT_SURE
from inbedder.grouping.describe.describe_groups import describe_groups
from inbedder.grouping.grouped_texts import LEFT_OUT, NO_INSTRUCTION, GroupedTexts
from inbedder.grouping.provenance import Provenance

if TYPE_CHECKING:
    from inbedder.classification.category_result import Classification
    from inbedder.embedder import InBedder


@dataclass(frozen=True, eq=False, repr=False)
class CategoryGroups(GroupedTexts):
    """Texts in the categories of the user, as groups."""

    unit: ClassVar[str] = "category"
    unsure: int | None = None
    """Number of the group of texts whose category is not sure; None without such texts."""

    def is_group(self, number: int) -> bool:
        """Return whether the texts of a number are in one category: not those in none, or whose category is not sure."""
        return super().is_group(number) and number != self.unsure


def make_category_groups(classification: Classification, model: InBedder, **options: Any) -> CategoryGroups:
    """Make a grouping whose groups are the categories that have texts.

    Args:
        classification: The categories of n texts.
        model: The model that classified them.
        **options: Keyword arguments of ``InBedder.answer``.

    Returns:
        The grouping, the largest category first; texts in none of the categories and those whose category is not sure form the
        last groups.
    """
    outcomes, texts, question = classification.outcomes, classification.texts, classification.instruction
    names = classification.outcome_names
    numbers, sizes = np.unique(outcomes, return_counts=True)
    first_without = len(classification.categories)
    order = numbers[np.lexsort((-sizes * (numbers < first_without), numbers * (numbers >= first_without)))].tolist()
    rank = np.zeros(len(names), dtype=np.int64)
    rank[order] = np.arange(len(order))
    labels, group_names = rank[outcomes], [names[number] for number in order]
    special = {names[number]: place for place, number in enumerate(order) if number >= first_without}
    provenance = Provenance(model.spec, question)
    answers = provenance.answer(model, texts, **options)
    vectors = classification.embeddings
    return CategoryGroups(
        instruction=NO_INSTRUCTION if question is None else question,
        texts=texts,
        labels=labels,
        answers=answers,
        embeddings=vectors,
        notes=[note for note in (classification.describe_left_out(), classification.describe_unsure()) if note],
        left_out=special.get(LEFT_OUT),
        unsure=special.get(NOT_SURE),
        provenance=provenance,
        index=classification.index,
        **describe_groups(texts, vectors, labels, answers, group_names)._asdict(),
    )
