"""What becomes of a pooled vector: the question's own vector subtracted, the text's own added, a second model's appended.

    v(x, i) = s(x, i) - s("", i)                             subtract_instruction
    v(x, i) = unit(unit(v(x, i)) + w(i) unit(b(x)))          add_generic: b is the base encoder, w(i) is in ``base_weights``
    v(x, i) = [unit(v(x, i)), unit(u(x, i))]                 beside: u is the second model
    v(x, i) = unit(v(x, i))                                  normalize

with s(x, i) the pooled states of text x under question i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from inbedder.encoding.base_weights import BaseWeights, add_base_vectors
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.protocols import Encoder
from inbedder.errors import ModelError
from inbedder.options import EncodingOptions
from inbedder.vectors import Vectors, check_finite, concatenate_vectors

MAX_CACHED_QUESTIONS = 1024
"""Questions whose own vector is remembered."""
Questions = Sequence[tuple[str, ...]]
"""For each text the questions that are asked of it."""


class PoolStates(Protocol):
    """Pools the states of n texts under m questions each: float32, shape (m, n, d)."""

    def __call__(self, texts: Sequence[str], questions: Questions, filter_words: Sequence[str], pace: RunOptions) -> Vectors:
        """Read the texts."""


class QuestionVectors:
    """v("", i), the vector of a question on its own, computed once per question."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._vectors: dict[tuple[str, ...], Vectors] = {}

    def find(self, questions: set[str], filter_words: Sequence[str], read: PoolStates) -> dict[str, Vectors]:
        """Return the vector of each question."""
        keys = {question: (question, *filter_words) for question in questions}
        remembered = {question: self._vectors.get(key) for question, key in keys.items()}
        vectors = {question: vector for question, vector in remembered.items() if vector is not None}
        if new := sorted(questions - vectors.keys()):
            pooled = read([""] * len(new), [(question,) for question in new], filter_words, RunOptions(32, False))
            vectors |= zip(new, pooled[0], strict=True)
            self._vectors.update({keys[question]: vectors[question] for question in new})
            for key in list(self._vectors)[:-MAX_CACHED_QUESTIONS]:  # a server meets questions without end
                self._vectors.pop(key, None)
        return vectors


@dataclass(frozen=True)
class QuestionCache:
    """What a model finds out once per question; it outlives a combiner where backbone and reading are the same."""

    question_vectors: QuestionVectors = field(default_factory=QuestionVectors)
    """The vector of each question on its own."""
    base_weights: BaseWeights = field(default_factory=BaseWeights)
    """How much of a text's own vector each question takes."""


class Combiner:
    """Makes a model's vectors of its pooled states."""

    def __init__(
        self,
        read: PoolStates,
        encoding: EncodingOptions,
        no_question: str,
        base_encoder: Callable[[], Encoder] | None = None,
        second_model: Encoder | None = None,
        question_cache: QuestionCache | None = None,
    ) -> None:
        """Bind the parts.

        Args:
            read: Pools the model's states.
            encoding: How a text becomes a vector, no default left open.
            no_question: The instruction that the model reads without a question; nothing is subtracted under it.
            base_encoder: Gives the model that reads texts without a question; None where nothing is added.
            second_model: The model whose vectors are appended, or None.
            question_cache: What was found out before; None is nothing.
        """
        self.encoding, self.no_question = encoding, no_question
        self.base_encoder, self.second_model = base_encoder, second_model
        self.question_cache = question_cache or QuestionCache()
        self._read = read

    def combine(
        self, vectors: Vectors, texts: Sequence[str], questions: Questions, filter_words: Sequence[str], pace: RunOptions
    ) -> Vectors:
        """Make vectors of pooled states.

        Args:
            vectors: float32, shape (m, n, d); changed in place.
            texts: n texts.
            questions: n tuples of m questions.
            filter_words: Words that were left out of the states; the base encoder and the second model are then left out too.
            pace: Batch size and progress bar.

        Returns:
            float32, shape (m, n, d) or, with a second model, (m, n, d + k).

        Raises:
            ModelError: When a vector is NaN or infinite, or the base encoder's vectors have another length.
        """
        if self.encoding.subtract_instruction:
            self._subtract_questions(vectors, questions, filter_words)
        if not filter_words and self.base_encoder is not None:
            self._add_base(self.base_encoder(), vectors, texts, questions, pace)
        if not filter_words and self.second_model is not None:
            vectors = concatenate_vectors(vectors, _embed_with_second_model(self.second_model, texts, questions, pace))
        return check_finite(vectors)

    def _subtract_questions(self, vectors: Vectors, questions: Questions, filter_words: Sequence[str]) -> None:
        asked_questions = {question for row in questions for question in row} - {self.no_question}
        own_vectors = self.question_cache.question_vectors.find(asked_questions, filter_words, self._read)
        for number in range(len(vectors)):
            if rows := [row for row, asked in enumerate(questions) if asked[number] in asked_questions]:
                vectors[number, rows] -= [own_vectors[questions[row][number]] for row in rows]

    def _add_base(
        self, base_encoder: Encoder, vectors: Vectors, texts: Sequence[str], questions: Questions, pace: RunOptions
    ) -> None:
        """Add the texts' own vectors under questions about the whole text, in place."""
        if base_encoder.dimension != vectors.shape[-1]:
            raise ModelError(f"The vectors of {base_encoder.name} have another length than the model's. Leave add_generic out.")

        def read_probes(probes: Sequence[str], instructions: Sequence[str]) -> Vectors:
            pooled: Vectors = self._read(probes, [(instruction,) for instruction in instructions], (), RunOptions(64, False))[0]
            return pooled

        by_question = self.question_cache.base_weights.find_weights(
            {question for row in questions for question in row}, read_probes, base_encoder
        )
        weights = np.array([[by_question[question] for question in row] for row in questions], dtype=np.float32).T
        if rows := np.flatnonzero(weights.any(axis=0)).tolist():
            options = {"batch_size": pace.batch_size, "show_progress_bar": pace.show_progress_bar}
            own_vectors = base_encoder.encode([texts[row] for row in rows], **options)
            vectors[:, rows] = add_base_vectors(vectors[:, rows], own_vectors, weights[:, rows, None])


def _embed_with_second_model(model: Encoder, texts: Sequence[str], questions: Questions, pace: RunOptions) -> Vectors:
    """The second model's vectors of the same prompts, shape (m, n, k)."""
    options: dict[str, Any] = {"batch_size": pace.batch_size, "show_progress_bar": pace.show_progress_bar}
    if len(set(questions)) == 1 and len(questions[0]) > 1:
        return model.encode_many(texts, list(questions[0]), **options)
    return np.stack([model.encode(texts, list(each), **options) for each in zip(*questions, strict=True)])
