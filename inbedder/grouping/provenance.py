"""The provenance of a grouping: model, encoding options, question and options of the grouping."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, TextCutWarning, format_value
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.vectors import Vectors, normalize_vectors

Instruction = str | list[str] | None
"""One question, its several wordings, or none."""
ADVICE = "Leave out the model to load the one that made the grouping, or group again."


def resolve_model(model: InBedder | str | None, *, exact: bool = False) -> InBedder:
    """Resolve the model of a call: a loaded one, the name of one, or None for the bundled default; in float64 for ``exact``."""
    embedder = model if isinstance(model, InBedder) else InBedder(model or "mini", dtype="float64" if exact else None)
    if exact and embedder.compute_dtype != "float64":
        raise InputError(
            f"exact needs a model in float64, and this one computes in {embedder.compute_dtype}. Load it with dtype='float64' "
            "(--dtype float64)."
        )
    return embedder


@dataclass(frozen=True)
class Provenance:
    """The provenance of a grouping. Its vectors are comparable only with vectors of the same spec."""

    spec: VectorSpec
    """Model and encoding options."""
    instruction: Instruction
    """The question asked about each text."""
    options: ClusterOptions = field(default_factory=ClusterOptions)
    """The options of the grouping; the namer is a name (``naming.get_namer_name``)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the provenance as a JSON-serializable dictionary."""
        return {"spec": self.spec.to_dict(), "instruction": self.instruction, "options": self.options.to_dict()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Provenance:
        """Make a provenance from the result of ``to_dict``.

        Args:
            table: Result of ``to_dict``.

        Returns:
            The provenance.

        Raises:
            InputError: If the model's settings or the question are damaged.
        """
        instruction, options = table["instruction"], table["options"]
        wordings = instruction if isinstance(instruction, list) else ["" if instruction is None else instruction]
        if not wordings or not all(isinstance(text, str) for text in wordings):
            raise InputError(f"The question {format_value(instruction)} is not text.")
        return cls(VectorSpec.from_dict(table["spec"]), instruction, ClusterOptions.parse(**options))

    def load_model(self, model: InBedder | str | None = None, **options: Any) -> InBedder:
        """Load the model with the recorded options, or check one that is loaded.

        Args:
            model: The model, if it is loaded already, or its current name or folder; None for the recorded name.
            **options: Keyword arguments of ``InBedder``. Options that would change vectors are rejected.

        Returns:
            The model.

        Raises:
            ModelError: If the model cannot be loaded.
            InputError: If it is another model, or has changed.
        """
        if self.options.exact:
            options = {"dtype": "float64"} | options
        if isinstance(model, InBedder):
            embedder = model
        else:
            try:
                embedder = self.spec.load(InBedder, **({} if model is None else {"model": model, "revision": None}), **options)
            except InbedderError as error:
                if model in (None, self.spec.model):
                    raise
                reason = f"The grouping was made with {format_value(self.spec.model)} (revision {self.spec.weights})"
                raise InputError(
                    f"{reason}, and {format_value(model)} cannot be loaded with the same options. {ADVICE}"
                ) from error
        self.spec.check(embedder.spec, "The grouping was made", ADVICE)
        return embedder

    def encode(self, embedder: InBedder, texts: list[str], **options: Any) -> Vectors:
        """Embed texts under the grouping's question.

        Args:
            embedder: The model.
            texts: n texts.
            **options: Keyword arguments of ``InBedder.encode``.

        Returns:
            Vectors of length 1, float32, shape (n, d); the mean over several wordings.
        """
        wordings = self.instruction if isinstance(self.instruction, list) else [self.instruction]
        vectors: Vectors = normalize_vectors(
            np.mean(
                [normalize_vectors(embedder.encode(texts, wording, precision="float32", **options)) for wording in wordings],
                axis=0,
            )
        )
        return vectors

    def answer(self, embedder: InBedder, texts: Sequence[str], rows: NDArray[np.intp] | None = None, **options: Any) -> list[str]:
        """Answer the grouping's question for texts.

        Args:
            embedder: The model.
            texts: n texts.
            rows: Positions of the texts to answer; None answers all.
            **options: Keyword arguments of ``InBedder.answer``.

        Returns:
            n strings, the answers to the first of several wordings; empty for texts that are not to be answered, and without a
            question or if the model does not answer.
        """
        answers = [""] * len(texts)
        if self.instruction is None or not embedder.backbone.answers:
            return answers
        positions = list(range(len(texts))) if rows is None else rows.tolist()
        first = self.instruction[0] if isinstance(self.instruction, list) else self.instruction
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TextCutWarning)  # encode has warned already
            new_answers = embedder.answer([texts[row] for row in positions], first, **options)
        for row, answer in zip(positions, new_answers, strict=True):
            answers[row] = str(answer)
        return answers
