"""An adapter for scikit-learn: a transformer from texts to vectors under an instruction.

make_pipeline(InstructedVectorizer(instruction="What is the complaint about?"), LogisticRegression()).fit(texts, labels)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from inbedder.arguments import check_list
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.integrations.shared_models import load_shared
from inbedder.prompting.templates import check_strings
from inbedder.vectors import Vectors


class InstructedVectorizer(TransformerMixin, BaseEstimator):
    """A transformer from texts to vectors that fits nothing. Clones share the model; pickles hold its name, not its weights.

    Example:
        >>> from inbedder.integrations.sklearn import InstructedVectorizer
        >>> vectorizer = InstructedVectorizer("What is the complaint about?")
        >>> vectorizer.fit_transform(["The box was crushed", "Two weeks late"]).shape
        (2, 384)
    """

    def __init__(
        self,
        instruction: str | None = None,
        model: str | InBedder = "mini",
        *,
        cache: str | None = None,
        normalize_embeddings: bool = False,
        batch_size: int = 32,
    ) -> None:
        """Set parameters; the model is loaded when it is first used.

        Args:
            instruction: The question about every text, or None; a parameter to search over.
            model: The name of a model, or an ``InBedder``.
            cache: A folder that caches vectors, so that a grid search encodes each text once per instruction; only with a name.
            normalize_embeddings: Scale vectors to length 1.
            batch_size: Batch size.
        """
        self.instruction = instruction
        self.model = model
        self.cache = cache
        self.normalize_embeddings = normalize_embeddings
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> InstructedVectorizer:  # noqa: N803 (scikit-learn's name)
        """Check the texts; nothing is learned from them.

        Args:
            X: n texts: a list, an array, a column of a table.
            y: Ignored.

        Returns:
            The transformer itself.

        Raises:
            InputError: When X is not a list of strings.
        """
        _check_texts(X)
        self._n_features_out = load_shared(self.model, self.cache).get_sentence_embedding_dimension()
        return self

    def transform(self, X: Any) -> Vectors:  # noqa: N803 (scikit-learn's name)
        """Embed texts.

        Args:
            X: n texts: a list, an array, a column of a table.

        Returns:
            float32, shape (n, d); a table after ``set_output(transform="pandas")``.

        Raises:
            InputError: When X is not a list of strings.
        """
        options = {"batch_size": self.batch_size, "normalize_embeddings": self.normalize_embeddings}
        model = load_shared(self.model, self.cache)
        return model.encode(_check_texts(X), self.instruction, show_progress_bar=False, **options)  # type: ignore[arg-type]

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name the dimensions: inbedder0, inbedder1, ...

        Args:
            input_features: Ignored.

        Returns:
            An array of d names.
        """
        count = load_shared(self.model, self.cache).get_sentence_embedding_dimension()
        return np.array([f"inbedder{number}" for number in range(count)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: nothing is fitted."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Describe a transformer of one column of strings that needs no fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


def _check_texts(values: Any) -> list[str]:
    """Return the texts of a list, of a column of a table or of a table of one column."""
    if isinstance(values, str):
        raise InputError("X must be a list of texts, not one string. Put it in a list: [...].")
    columns = getattr(values, "columns", None)
    if columns is not None and len(columns) == 1:
        values = values[columns[0]]
    return check_strings("X", check_list("X", values))
