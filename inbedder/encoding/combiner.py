"""From pooled states to vectors: subtract the question's vector, append a second model's, normalise.

    v(x, i) = s(x, i) - s("", i)                             subtract_instruction
    v(x, i) = [unit(v(x, i)), unit(u(x, i))]                 beside: u is the second model
    v(x, i) = unit(v(x, i))                                  normalize

with s(x, i) the pooled states of text x under question i. A difference that is only rounding is exactly zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from inbedder.encoding.language_scope import check_language_once
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.protocols import Encoder
from inbedder.options import EncodingOptions
from inbedder.vectors.vectors import MIN_RELATIVE_SUM, Vectors, add_vectors, check_finite, concatenate_vectors

MAX_CACHED_QUESTIONS = 1024
"""Maximum number of questions whose own vector is cached."""
Questions = Sequence[tuple[str, ...]]
"""The questions of each text."""


class PoolStates(Protocol):
    """A function that pools the states of n texts under m questions each: float32, shape (m, n, d)."""

    def __call__(
        self, texts: Sequence[str], questions: Questions, filter_words: Sequence[str], run_options: RunOptions
    ) -> Vectors:
        """Pool the states."""


class QuestionVectors:
    """The vectors v("", i) of questions on their own, computed once per question."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._vectors: dict[tuple[str, ...], Vectors] = {}

    def find(self, questions: set[str], filter_words: Sequence[str], pool_states: PoolStates) -> dict[str, Vectors]:
        """Return the vector of each question."""
        keys = {question: (question, *filter_words) for question in questions}
        cached_vectors = {question: self._vectors.get(key) for question, key in keys.items()}
        vectors = {question: vector for question, vector in cached_vectors.items() if vector is not None}
        if new := sorted(questions - vectors.keys()):
            pooled = pool_states([""] * len(new), [(question,) for question in new], filter_words, RunOptions(32, False))
            vectors |= zip(new, pooled[0], strict=True)
            self._vectors.update({keys[question]: vectors[question] for question in new})
            for key in list(self._vectors)[:-MAX_CACHED_QUESTIONS]:  # a server gets an unlimited number of questions
                self._vectors.pop(key, None)
        return vectors


class Combiner:
    """Computes vectors from pooled states."""

    def __init__(
        self,
        pool_states: PoolStates,
        encoding: EncodingOptions,
        no_question: str,
        second_model: Encoder | None = None,
        question_vectors: QuestionVectors | None = None,
        min_relative_difference: float = MIN_RELATIVE_SUM,
    ) -> None:
        """Set the parts.

        Args:
            pool_states: Pools the model's states.
            encoding: How a text becomes a vector, with every default filled in.
            no_question: The instruction of calls without a question; its own vector is never subtracted.
            second_model: The model whose vectors are appended, or None.
            question_vectors: The vectors of earlier questions; None starts an empty cache.
            min_relative_difference: Length below which a text's difference from its question is rounding of the states.
        """
        self.encoding, self.no_question = encoding, no_question
        self.second_model = second_model
        self.question_vectors = question_vectors or QuestionVectors()
        self._pool_states, self._min_relative_difference = pool_states, min_relative_difference

    def combine(
        self, vectors: Vectors, texts: Sequence[str], questions: Questions, filter_words: Sequence[str], run_options: RunOptions
    ) -> Vectors:
        """Compute vectors from pooled states.

        Args:
            vectors: The pooled states, float32, shape (m, n, d); changed in place.
            texts: n texts.
            questions: n tuples of m questions.
            filter_words: Words whose states were left out; with any, the second model is not used.
            run_options: Batch size and progress bar.

        Returns:
            float32, shape (m, n, d) or, with a second model, (m, n, d + k).

        Raises:
            ModelError: When a vector contains NaN or infinite values.
        """
        if self.encoding.subtract_instruction:
            self._subtract_question_vectors(vectors, questions, filter_words)
        if not filter_words and self.second_model is not None:
            vectors = concatenate_vectors(vectors, _embed_with_second_model(self.second_model, texts, questions, run_options))
        return check_finite(vectors)

    def _subtract_question_vectors(self, vectors: Vectors, questions: Questions, filter_words: Sequence[str]) -> None:
        """Subtract each question's own vector, in place."""
        distinct_questions = {question for row in questions for question in row} - {self.no_question}
        question_vectors = self.question_vectors.find(distinct_questions, filter_words, self._pool_states)
        for number in range(len(vectors)):
            if rows := [row for row, row_questions in enumerate(questions) if row_questions[number] in distinct_questions]:
                own_vectors = np.stack([question_vectors[questions[row][number]] for row in rows])
                vectors[number, rows] = add_vectors(vectors[number, rows], -own_vectors, self._min_relative_difference)


def _embed_with_second_model(model: Encoder, texts: Sequence[str], questions: Questions, run_options: RunOptions) -> Vectors:
    """Embed the same texts and questions with the second model: shape (m, n, k)."""
    options: dict[str, Any] = {"batch_size": run_options.batch_size, "show_progress_bar": run_options.show_progress_bar}
    with check_language_once(is_checked=True):
        if len(set(questions)) == 1 and len(questions[0]) > 1:
            return model.encode_many(texts, list(questions[0]), **options)
        return np.stack([model.encode(texts, list(instructions), **options) for instructions in zip(*questions, strict=True)])
