"""Where a grouping's vectors come from: the model and how it is read, the question, the namer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, TextCutWarning, shown
from inbedder.vector_spec import VectorSpec
from inbedder.vectors import Vectors, unit

Instruction = str | list[str] | None
"""One question, several wordings of it, or none."""
NO_INSTRUCTION = "(no instruction)"
"""What stands for the question of general-purpose vectors."""
ADVICE = "Leave the model out to load the one that it was made with, or group again."


@dataclass(frozen=True)
class Provenance:
    """What made a grouping. Vectors of a model with another spec cannot be compared with its own."""

    spec: VectorSpec
    """The model and how it is read."""
    instruction: Instruction
    """What is asked of each text."""
    namer: str = "words"
    """What named the groups (``naming.get_namer_name``)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the provenance as JSON takes it."""
        return {"spec": self.spec.to_dict(), "instruction": self.instruction, "namer": self.namer}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Provenance:
        """Make a provenance of what ``to_dict`` returned.

        Args:
            table: The provenance.

        Returns:
            An equal one.

        Raises:
            InputError: When the model's settings are damaged.
        """
        return cls(VectorSpec.from_dict(table["spec"]), table["instruction"], table["namer"])

    def load_model(self, name: str | None = None, **options: Any) -> InBedder:
        """Load the model as it was.

        Args:
            name: Where it is now; None is where it was.
            **options: Keyword arguments of ``InBedder``; those that would change vectors are refused.

        Returns:
            The model.

        Raises:
            ModelError: When it cannot be loaded.
            InputError: When it is another, or has changed.
        """
        try:
            embedder: InBedder = self.spec.load(
                InBedder, **({} if name is None else {"model": name, "revision": None}), **options
            )
        except InbedderError as error:
            if name in (None, self.spec.model):
                raise
            made = f"The grouping was made with {shown(self.spec.model)} (revision {self.spec.weights})"
            raise InputError(f"{made}, and {shown(name)} cannot be read like it. {ADVICE}") from error
        self.check(embedder)
        return embedder

    def check(self, embedder: InBedder) -> None:
        """Refuse a loaded model whose vectors cannot be compared with the grouping's."""
        self.spec.check(embedder.spec, "The grouping was made", ADVICE)

    def encode(self, embedder: InBedder, texts: list[str], **options: Any) -> Vectors:
        """Embed texts as the grouping's were.

        Args:
            embedder: The model.
            texts: n texts.
            **options: Keyword arguments of ``InBedder.encode``.

        Returns:
            float32, shape (n, d), of length 1: of several wordings the mean of their vectors.
        """
        wordings = self.instruction if isinstance(self.instruction, list) else [self.instruction]
        vectors: Vectors = unit(np.mean([unit(embedder.encode(texts, wording, **options)) for wording in wordings], axis=0))
        return vectors

    def answer(self, embedder: InBedder, texts: list[str], **options: Any) -> list[str]:
        """Answer the grouping's question for texts.

        Args:
            embedder: The model.
            texts: n texts.
            **options: Keyword arguments of ``InBedder.answer``.

        Returns:
            n strings; of several wordings the answers to the first; empty ones without a question or of a model that does not
            answer.
        """
        if self.instruction is None or not embedder.backbone.answers:
            return [""] * len(texts)
        first = self.instruction[0] if isinstance(self.instruction, list) else self.instruction
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TextCutWarning)  # encode has already warned
            return [str(answer) for answer in embedder.answer(texts, first, **options)]
