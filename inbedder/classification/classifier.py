"""``classify``: the category whose vector is nearest to the vector of a text's answer.

A category's vector is that of its name or description, read like a text under the same question. If the category has examples,
their mean vector is added. Nothing is trained.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_finite_number, check_list, check_vectors
from inbedder.classification.categories import Category, parse_categories
from inbedder.classification.category_result import Classification, LabelledRows
from inbedder.classification.category_scores import choose_categories, find_min_lead, find_min_score
from inbedder.embedder import InBedder
from inbedder.encoding.language_scope import check_language_once
from inbedder.errors import InputError, format_names
from inbedder.grouping.partition.temperature import fit_temperature
from inbedder.grouping.provenance import resolve_model
from inbedder.io.cell_values import is_blank
from inbedder.io.column_types import format_number
from inbedder.prompting.templates import check_question, check_texts
from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors, similarity

MIN_CALIBRATION_ROWS = 20
"""Minimum number of labelled rows to fit a temperature."""


def classify(
    texts: Sequence[str],
    instruction: str | None,
    categories: Sequence[str | Category] | Mapping[str, str | Sequence[str]],
    *,
    examples: Mapping[str, Sequence[str]] | None = None,
    model: InBedder | str | None = None,
    min_score: float | str | None = None,
    min_lead: float | str | None = None,
    labels: Sequence[Any] | None = None,
    embeddings: Vectors | None = None,
    category_vectors: Vectors | None = None,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> Classification:
    """Classify texts into categories by a model's answers to an instruction, without training.

    Args:
        texts: n texts, at least one.
        instruction: The question whose answers the categories are; None compares general-purpose vectors.
        categories: Names; or a mapping from each name to a description or to example texts.
        examples: Example texts by name of the category, about five each.
        model: An ``InBedder``, the name of a model, or None for the bundled default.
        min_score: Cosine below which a text is in none of the categories: a number, or "auto" to set it by the corpus
            (``find_min_score``). None leaves no text out.
        min_lead: Difference of the best and the second-best cosine below which the category of a text is not sure: a number, or
            "auto" for the lower quartile of the differences. None leaves no text out.
        labels: Known category of each text, n values, blank where unknown. Twenty or more calibrate the probabilities. A label
            that is no category counts as "none of these".
        embeddings: Vectors of the texts under the instruction, shape (n, d), if you already have them.
        category_vectors: Vectors of the categories under the instruction, shape (k, d), such as means of groups; None embeds the
            categories' descriptions and examples.
        batch_size: Batch size.
        show_progress_bar: None shows a progress bar for long work in a terminal.

    Returns:
        The category, cosines and probabilities of each text.

    Raises:
        InputError: If there is no text, the question is blank, there are fewer than two categories, or no label is a category.

    Example:
        >>> from inbedder import classify
        >>> texts = ["It came three weeks late.", "The box was crushed."]
        >>> classify(texts, "What is the complaint about?", ["late delivery", "damaged item"]).names
        ['late delivery', 'damaged item']
    """
    rows = check_texts(texts, None)[0]
    if not rows:
        raise InputError("There is no text to classify.")
    parsed = parse_categories(categories, examples)
    limits = {"min_score": min_score, "min_lead": min_lead}
    numbers = {name: None if limit in (None, "auto") else check_finite_number(name, limit) for name, limit in limits.items()}
    known_labels = None if labels is None else _parse_labels(labels, parsed, len(rows))
    check_question(instruction)
    if embeddings is not None:
        embeddings = check_vectors("embeddings", embeddings, rows)
    if category_vectors is not None:
        category_vectors = check_vectors("category_vectors", category_vectors, [category.meaning for category in parsed])
    embedder = resolve_model(model)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    if embeddings is None:
        embeddings = embedder.encode(rows, instruction, precision="float32", **options)
    if category_vectors is None:
        with check_language_once(is_checked=True):  # the categories are no texts of the table
            category_vectors = embed_categories(embedder, parsed, instruction, **options)
    scores = similarity(embeddings, category_vectors)
    threshold = find_min_score(scores) if min_score == "auto" else numbers["min_score"]
    lead = find_min_lead(scores) if min_lead == "auto" else numbers["min_lead"]
    category_labels = choose_categories(scores, threshold, lead)
    return Classification(
        instruction=instruction,
        texts=rows,
        categories=parsed,
        labels=category_labels,
        scores=scores,
        embeddings=embeddings,
        temperature=None if known_labels is None else _fit_known_rows(scores, known_labels),
        min_score=threshold,
        min_lead=lead,
        agreement=None if known_labels is None else LabelledRows.of(known_labels, category_labels, len(parsed)),
        index=texts.index if hasattr(texts, "iloc") else None,
    )


def _fit_known_rows(scores: Vectors, known_labels: Labels) -> float | None:
    """Fit the temperature on the rows labelled with a category; None if there are too few."""
    is_known = (known_labels >= 0) & (known_labels < scores.shape[1])
    return fit_temperature(scores[is_known], known_labels[is_known]) if is_known.sum() >= MIN_CALIBRATION_ROWS else None


def embed_categories(embedder: InBedder, categories: Sequence[Category], instruction: str | None, **options: Any) -> Vectors:
    """Embed categories.

    Args:
        embedder: The model.
        categories: k categories.
        instruction: The question, or None.
        **options: Keyword arguments of ``InBedder.encode``.

    Returns:
        float32, shape (k, d), of length 1.
    """
    meanings = [category.meaning for category in categories]
    texts = meanings + [text for category in categories for text in category.examples]
    vectors = normalize_vectors(embedder.encode(texts, instruction, precision="float32", **options))
    owners = np.repeat(np.arange(len(categories)), [len(category.examples) for category in categories])
    return add_examples(vectors[: len(categories)], vectors[len(categories) :], owners)


def add_examples(category_vectors: Vectors, example_vectors: Vectors, owners: NDArray[np.integer]) -> Vectors:
    """Add the mean vector of its examples to each category's vector.

    Args:
        category_vectors: Vectors of names or descriptions, of length 1, shape (k, d).
        example_vectors: Vectors of the examples, of length 1, shape (m, d).
        owners: Category of each example, shape (m,).

    Returns:
        float32, shape (k, d), of length 1.
    """
    combined = category_vectors.copy()
    for number in np.unique(owners):
        combined[number] += normalize_vectors(example_vectors[owners == number].mean(axis=0, keepdims=True))[0]
    sums: Vectors = normalize_vectors(combined)
    return sums


def _normalize_label(label: Any) -> str:
    """Spell a label as its equals are: composed letters, one case, 1.0 as 1."""
    text = format_number(label) if isinstance(label, (float, np.floating)) else str(label)
    return unicodedata.normalize("NFC", text).strip().casefold()


def _parse_labels(labels: Sequence[Any], categories: Sequence[Category], count: int) -> Labels:
    """Find the category of each label: -1 for a blank, k for a label that names none of the k categories; int64, shape (n,)."""
    values = check_list("labels", labels)
    if len(values) != count:
        raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    numbers = {_normalize_label(category.name): number for number, category in enumerate(categories)}
    names = [None if is_blank(value) else _normalize_label(value) for value in values]
    if not any(name in numbers for name in names) and any(names):
        unknown = sorted({str(value) for value, name in zip(values, names, strict=True) if name is not None})
        category_names = format_names([category.name for category in categories])
        raise InputError(f"None of the labels {format_names(unknown)} is a category. The categories are: {category_names}.")
    return np.array([-1 if name is None else numbers.get(name, len(categories)) for name in names], dtype=np.int64)
