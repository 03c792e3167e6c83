"""A training row of answering."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A question about a text, with its answer."""

    text: str
    """The text."""
    instruction: str
    """The question."""
    answer: str
    """The answer, without stopwords if the recipe strips them."""
    source: str
    """Name of the data set."""
    target: str = "answer"
    """What the vector is trained towards: "answer" or "text"."""

    @property
    def target_text(self) -> str:
        """The text whose vector is the target of the row's vector."""
        return self.text if self.target == "text" else self.answer.lower()
