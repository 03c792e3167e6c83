"""Adapters for scikit-learn: texts to vectors under an instruction, to groups, and to categories by a few examples.

make_pipeline(InstructedVectorizer(instruction="What is the complaint about?"), LogisticRegression()).fit(texts, labels)
InstructedClassifier(instruction="What is the complaint about?").fit(five_texts_per_category, labels)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from inbedder.arguments import check_list
from inbedder.classification.category_scores import DEFAULT_TEMPERATURE
from inbedder.classification.classifier import add_examples
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.cluster_options import ClusterOptions, make_cluster_signature
from inbedder.grouping.clustering import cluster
from inbedder.grouping.partition.temperature import compute_probabilities
from inbedder.integrations.shared_models import load_shared
from inbedder.io.cell_values import is_blank
from inbedder.option_types import FormatKwargs
from inbedder.prompting.templates import check_strings
from inbedder.vectors.vectors import Vectors, normalize_vectors, similarity


class _TextEstimator(BaseEstimator):
    """An estimator whose input is one column of strings."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class InstructedVectorizer(TransformerMixin, _TextEstimator):
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
        """Check the texts, a list, an array or a column of strings; nothing is learned from them."""
        _check_texts(X)
        self._n_features_out = load_shared(self.model, self.cache).get_embedding_dimension()
        return self

    def transform(self, X: Any) -> Vectors:  # noqa: N803 (scikit-learn's name)
        """Embed n texts: float32, shape (n, d), or a table after ``set_output(transform="pandas")``."""
        options: FormatKwargs = {
            "batch_size": self.batch_size,
            "normalize_embeddings": self.normalize_embeddings,
            "precision": "float32",
            "show_progress_bar": False,
        }
        model = load_shared(self.model, self.cache)
        return model.encode(_check_texts(X), self.instruction, **options)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name the d dimensions: inbedder0, inbedder1, ..."""
        count = load_shared(self.model, self.cache).get_embedding_dimension()
        return np.array([f"inbedder{number}" for number in range(count)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: nothing is fitted."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Describe a transformer that needs no fit."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class InstructedClusterer(ClusterMixin, _TextEstimator):
    """A clusterer of texts by their answers to an instruction; its options are those of ``inbedder.cluster``.

    Example:
        >>> from inbedder.integrations.sklearn import InstructedClusterer
        >>> InstructedClusterer("Which animal?", k=2).fit_predict(["I love cats", "I love dogs", "My cat sleeps"]).shape
        (3,)
    """

    def __init__(self, instruction: str | None = None, model: str | InBedder = "mini", **options: Any) -> None:
        """Set parameters; the model is loaded when it is first used.

        Args:
            instruction: The question to group by, or None; a parameter to search over.
            model: The name of a model, or an ``InBedder``.
            **options: Fields of ``ClusterOptions``.

        Raises:
            InputError: If an option is unknown.
        """
        self.instruction = instruction
        self.model = model
        for name, value in {**vars(ClusterOptions()), **vars(ClusterOptions.parse(**options))}.items():
            setattr(self, name, options.get(name, value))

    def fit(self, X: Any, y: Any = None) -> InstructedClusterer:  # noqa: N803 (scikit-learn's name)
        """Group n texts, and set ``labels_`` (n groups) and ``result_`` (a ``ClusterResult``)."""
        options = {option.name: getattr(self, option.name) for option in dataclasses.fields(ClusterOptions)}
        model = self.model if self.exact else load_shared(self.model, None)
        self.result_ = cluster(_check_texts(X), self.instruction, model, show_progress_bar=False, **options)
        self.labels_ = self.result_.labels
        return self


InstructedClusterer.__init__.__signature__ = make_cluster_signature(InstructedClusterer.__init__)  # type: ignore[attr-defined]


class InstructedClassifier(ClassifierMixin, _TextEstimator):
    """A classifier by the nearest category vector, for a handful of examples per category; classes are named in words.

    Each category's vector is the sum of its name's and its examples' mean vector, of length 1 each, as in ``inbedder.classify``.
    With hundreds of examples, ``InstructedVectorizer`` and a ``LogisticRegression`` are better.

    Example:
        >>> from inbedder.integrations.sklearn import InstructedClassifier
        >>> classifier = InstructedClassifier("What is the complaint about?")
        >>> classifier.fit(["Two weeks late", "The box was crushed"], ["delivery", "damage"]).classes_.tolist()
        ['damage', 'delivery']
    """

    def __init__(
        self,
        instruction: str | None = None,
        model: str | InBedder = "mini",
        *,
        cache: str | None = None,
        use_names: bool = True,
        temperature: float = DEFAULT_TEMPERATURE,
        batch_size: int = 32,
    ) -> None:
        """Set parameters; the model is loaded when it is first used.

        Args:
            instruction: The question whose answers the categories are, or None; a parameter to search over.
            model: The name of a model, or an ``InBedder``.
            cache: A folder that caches vectors; only with a name.
            use_names: Whether the names of the categories count; False for names that say nothing, such as numbers.
            temperature: Temperature of the probabilities; ``CalibratedClassifierCV`` fits better ones.
            batch_size: Batch size.
        """
        self.instruction = instruction
        self.model = model
        self.cache = cache
        self.use_names = use_names
        self.temperature = temperature
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any) -> InstructedClassifier:  # noqa: N803 (scikit-learn's name)
        """Embed the categories and their examples.

        Args:
            X: n texts: a list, an array, a column of a table.
            y: Category of each text, n values.

        Returns:
            The classifier itself.

        Raises:
            InputError: If X is not a list of strings, or y has a missing label, another length or only one category.
        """
        texts = _check_texts(X)
        labels = np.asarray(_check_labels(check_list("y", y)))
        if len(labels) != len(texts):
            raise InputError(f"X has {len(texts)} texts but y has {len(labels)} labels: give one label per text.")
        self.classes_, owners = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("y has only one category. Give examples of at least two.")
        names = [str(name) for name in self.classes_] if self.use_names else []
        vectors = self._embed(names + texts)
        no_names = np.zeros((len(self.classes_), vectors.shape[1]), dtype=np.float32)
        self.category_vectors_ = add_examples(vectors[: len(names)] if names else no_names, vectors[len(names) :], owners)
        return self

    def decision_function(self, X: Any) -> Vectors:  # noqa: N803 (scikit-learn's name)
        """Compute cosines: float32, shape (n, k); for two categories the difference, shape (n,), as scikit-learn does."""
        scores = self._score(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Vectors:  # noqa: N803 (scikit-learn's name)
        """Compute the probability of each category: float32, shape (n, k); each row sums to 1."""
        return compute_probabilities(self._score(X), self.temperature)

    def predict(self, X: Any) -> Any:  # noqa: N803 (scikit-learn's name)
        """Find the category of each text."""
        return self.classes_[self._score(X).argmax(axis=1)]

    def _score(self, values: Any) -> Vectors:
        check_is_fitted(self)
        return similarity(self._embed(_check_texts(values)), self.category_vectors_)

    def _embed(self, texts: list[str]) -> Vectors:
        model = load_shared(self.model, self.cache)
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": False}
        vectors: Vectors = normalize_vectors(model.encode(texts, self.instruction, precision="float32", **options))
        return vectors


def _check_labels(labels: list[Any]) -> list[Any]:
    """Return labels, none of which is missing or a blank text."""
    if missing := [number for number, label in enumerate(labels) if is_blank(label)]:
        raise InputError(f"y: entry {missing[0]} is missing. Leave out texts without a label.")
    return labels


def _check_texts(values: Any) -> list[str]:
    """Return the texts of a list, of a column of a table or of a table of one column."""
    if isinstance(values, str):
        raise InputError("X must be a list of texts, not one string. Put it in a list: [...].")
    if getattr(values, "ndim", 1) == 2 and getattr(values, "shape", (0, 0))[1] == 1 and hasattr(values, "ravel"):
        values = values.ravel()
    columns = getattr(values, "columns", None)
    if columns is not None and len(columns) == 1:
        values = values[columns[0]]
    return check_strings("X", check_list("X", values))
