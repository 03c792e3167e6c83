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
    """What the vector is trained towards: "answer", "text" or "both"."""
    teacher_instruction: str | None = None
    """The instruction of the teachers; None is the row's own, "@none" is none, and "" gives the row no teacher."""

    @property
    def target_texts(self) -> tuple[str, ...]:
        """The texts whose mean vector is the target of the row's vector."""
        return {"answer": (self.answer.lower(),), "text": (self.text,), "both": (self.answer.lower(), self.text)}[self.target]
