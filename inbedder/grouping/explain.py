"""What a group of texts has in common under an instruction: keywords, examples, head words, labels.

Keywords follow section 6 of the InBedder paper: the answers of a cluster are one document, and words are weighed by TF-IDF over
the clusters' documents. ``weighting="paper"`` is what the authors' code computes; the default ranks words by how far their weight
stands out from the other clusters and leaves out stopwords. Models that answer nothing have their texts in the place of answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.words import stopwords

WORD = r"(?u)\b\w[\w'-]+\b"
NO_LABEL = "(no label)"
STANDS_OUT = 0.25  # a keyword's weight is at least this share above its mean in the other clusters


@dataclass(frozen=True)
class LabelAgreement:
    """How clusters relate to a label column."""

    composition: list[dict[str, int]]
    """Labels and their counts, one table per cluster, most frequent first."""
    entropy: list[float]
    """Entropy of each cluster's labels, in bits; 0 when they are all alike."""
    v_measure: float
    """Harmonic mean of homogeneity and completeness, 0 to 1 (Rosenberg and Hirschberg 2007)."""
    unlabelled: int = 0
    """Texts without a label: they stand in the composition as "(no label)" and in neither measure."""


def keywords(
    answers: Sequence[str],
    labels: NDArray[np.int64],
    top: int = 8,
    *,
    weighting: Literal["standing-out", "paper"] = "standing-out",
) -> list[list[str]]:
    """Words that name each cluster (InBedder paper, section 6).

    Args:
        answers: One answer per text, n strings, or the texts themselves.
        labels: Cluster of each text, shape (n,), 0 .. k-1.
        top: Most words per cluster.
        weighting: "standing-out" leaves out stopwords, dampens counts, ranks by the weight minus its mean in the other clusters
            and stops where a word no longer stands out. "paper" is the authors' code: scikit-learn's TF-IDF with its defaults,
            ranked by the weight minus its mean over all clusters, always the first ``top`` words.

    Returns:
        k lists of words, the most telling first; empty where a cluster's answers hold no word.

    Raises:
        InputError: When the weighting is unknown.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if weighting not in ("standing-out", "paper"):
        raise InputError(f"Unknown weighting {weighting!r} of keywords. Choose standing-out or paper.")
    count = int(labels.max()) + 1 if len(labels) else 0
    documents = [" ".join(answers[i] for i in np.flatnonzero(labels == cluster).tolist()) for cluster in range(count)]
    left_out = [word for word in sorted(stopwords()) if re.fullmatch(WORD, word)]
    ours: dict[str, Any] = {"token_pattern": WORD, "stop_words": left_out, "sublinear_tf": True}
    paper = weighting == "paper"
    vectorizer = TfidfVectorizer(**({} if paper else ours))
    try:
        weights = vectorizer.fit_transform(documents).toarray()
    except ValueError:  # no word in any document
        return [[] for _ in documents]
    words = vectorizer.get_feature_names_out()
    named = []
    for cluster in range(count):
        others = weights if paper else np.delete(weights, cluster, axis=0)
        standing_out = weights[cluster] - (others.mean(axis=0) if len(others) else 0.0)
        enough = weights[cluster].any() & (paper | (standing_out > STANDS_OUT * weights[cluster]))
        order = np.argsort(-standing_out, kind="stable")[:top]
        named.append([str(words[i]) for i in order if enough[i]])
    return named


def central_texts(texts: Sequence[str], vectors: NDArray[np.float32], labels: NDArray[np.int64], top: int = 5) -> list[list[int]]:
    """The texts closest to the mean of their cluster.

    Args:
        texts: n texts.
        vectors: Shape (n, d), of length 1.
        labels: Cluster of each text, shape (n,).
        top: Most texts per cluster.

    Returns:
        Row numbers, k lists, the most central first; a repeated text is shown once.
    """
    chosen = []
    for cluster in range(int(labels.max()) + 1 if len(labels) else 0):
        rows = np.flatnonzero(labels == cluster)
        closeness = vectors[rows] @ vectors[rows].mean(axis=0)
        distinct: dict[str, int] = {}
        for row in rows[np.argsort(-closeness, kind="stable")]:
            distinct.setdefault(texts[row].strip(), int(row))
            if len(distinct) == top:
                break
        chosen.append(list(distinct.values()))
    return chosen


def mean_differences(vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Cluster means minus the corpus mean, which the authors' code reads with the language-model head.

    Args:
        vectors: Shape (n, d), as the model gave them.
        labels: Cluster of each text, shape (n,).

    Returns:
        Shape (k, d).
    """
    means = [vectors[labels == cluster].mean(axis=0) for cluster in range(int(labels.max()) + 1)]
    differences: NDArray[np.float32] = (np.stack(means) - vectors.mean(axis=0)).astype(np.float32)
    return differences


def agreement(labels: NDArray[np.int64], given: Sequence[Any]) -> LabelAgreement:
    """Compare clusters with a label column (paper, table 3).

    Args:
        labels: Cluster of each text, shape (n,).
        given: A label of each text; None, NaN and blanks are none.

    Returns:
        Composition and entropy of each cluster, and the V-measure; texts without a label are counted in neither measure.
    """
    from sklearn.metrics import v_measure_score

    names = np.array([NO_LABEL if _is_blank(label) else str(label).strip() for label in given], dtype=object)
    labelled = names != NO_LABEL
    composition, entropy = [], []
    for cluster in range(int(labels.max()) + 1):
        counts = Counter(names[labels == cluster])
        blank = counts.pop(NO_LABEL, 0)
        shares = np.array(list(counts.values())) / max(1, counts.total())
        composition.append(dict(counts.most_common()) | ({NO_LABEL: blank} if blank else {}))
        entropy.append(float(max(0.0, -(shares * np.log2(shares)).sum())))
    v_measure = float(v_measure_score(names[labelled].tolist(), labels[labelled])) if labelled.any() else 0.0
    return LabelAgreement(composition, entropy, v_measure, int((~labelled).sum()))


def _is_blank(label: Any) -> bool:
    return label is None or label != label or not str(label).strip()
