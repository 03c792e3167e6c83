"""One row that a model learns from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One question about one text, with its answer."""

    text: str
    """The paragraph."""
    instruction: str
    """The question."""
    answer: str
    """The answer, stripped when the recipe says so."""
    source: str
    """Name of the set."""
    target: str = "answer"
    """What the vector is drawn to: "answer", "text" or "both"."""
    taught_as: str | None = None
    """What teachers are asked; None is the question, "@unasked" nothing, and "" leaves them out."""

    @property
    def drawn_to(self) -> tuple[str, ...]:
        """The texts whose mean vector the row's vector is drawn to."""
        return {"answer": (self.answer.lower(),), "text": (self.text,), "both": (self.answer.lower(), self.text)}[self.target]
