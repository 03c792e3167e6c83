"""Explanations of groups: keywords, central texts, mean differences and agreement with labels.

Keywords follow section 6 of the InBedder paper: the answers of a cluster form one document, and TF-IDF over the documents weights
the words, as in the authors' code. If the model does not answer, the texts replace the answers; a word's weight is then its
excess over the other clusters, without stopwords.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.grouping.grouped_texts import LabelAgreement
from inbedder.io.cell_values import is_blank
from inbedder.prompting.words import MARKUP_WORDS, find_stopwords, split_spaceless, strip_addresses
from inbedder.vectors.vectors import normalize_vectors

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Labels

Weighting = Literal["paper", "standing-out"]
WORD = r"(?u)\b\w[\w'-]+\b"
MIN_SCORE = 1e-9
"""Minimum score of a keyword; lower scores are rounding errors."""
NO_LABEL = "(no label)"
MIN_EXCESS = 0.25
"""Minimum share of a keyword's weight by which it exceeds its mean in the other clusters."""


def find_keywords(answers: Sequence[str], labels: Labels, top: int = 8, *, weighting: Weighting = "paper") -> list[list[str]]:
    """Find the keywords of each cluster (InBedder paper, section 6).

    Args:
        answers: One answer per text, n strings, or the texts themselves.
        labels: Cluster of each text, shape (n,), 0 .. k-1.
        top: Maximum number of words per cluster.
        weighting: "paper" follows the authors' code: scikit-learn's default TF-IDF, ranked by a word's weight minus its mean over
            all clusters. "standing-out", for texts instead of answers, removes stopwords, dampens counts, ranks by the weight
            minus its mean in the other clusters and drops words with a small excess.

    Returns:
        k lists of words, the most distinctive first; empty for a cluster without words.

    Raises:
        InputError: If the weighting is unknown.
    """
    if weighting not in _WEIGHTINGS:
        raise InputError(f"Unknown weighting {weighting!r} of keywords. Choose one of: {', '.join(_WEIGHTINGS)}.")
    count = int(labels.max()) + 1 if len(labels) else 0
    documents = ["\n".join(answers[i] for i in np.flatnonzero(labels == cluster).tolist()) for cluster in range(count)]
    try:
        words, scores = _WEIGHTINGS[weighting](documents)
    except ValueError:  # no word in any document
        return [[] for _ in documents]
    orders = np.argsort(-scores.round(9), axis=1, kind="stable")[:, :top]  # equal scores differ by rounding
    return [[str(words[i]) for i in order if scores[cluster, i] > MIN_SCORE] for cluster, order in enumerate(orders)]


WordScores = tuple[NDArray[Any], NDArray[np.float64]]
"""w words and their scores in k documents, shape (k, w); a word with a score of 0 or less is no keyword."""


def _score_as_paper(documents: Sequence[str]) -> WordScores:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    weights = vectorizer.fit_transform(documents).toarray()
    return vectorizer.get_feature_names_out(), weights - (weights.mean(axis=0) if len(documents) > 1 else 0.0)


def _score_by_excess(documents: Sequence[str]) -> WordScores:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=_list_content_words, sublinear_tf=True)
    weights = vectorizer.fit_transform(documents).toarray()
    excess = weights - (weights.sum(axis=0) - weights) / max(1, len(documents) - 1)
    return vectorizer.get_feature_names_out(), np.where(excess > MIN_EXCESS * weights, excess, 0.0)


def _list_content_words(document: str) -> list[str]:
    """List the words of a document of one text per line, in lower case, without the stopwords of each text's language."""
    content_words = []
    for line in strip_addresses(document.lower()).splitlines():
        words = [word for part in re.findall(WORD, line) for word in split_spaceless(part)]
        stopwords = find_stopwords(words)
        content_words += [word for word in words if word not in stopwords and word not in MARKUP_WORDS]
    return content_words


_WEIGHTINGS: dict[str, Callable[[Sequence[str]], WordScores]] = {
    "paper": _score_as_paper,
    "standing-out": _score_by_excess,
}


def find_central_texts(texts: Sequence[str], vectors: NDArray[np.float32], labels: Labels, top: int = 5) -> list[list[int]]:
    """Find the texts closest to the mean of their cluster.

    Args:
        texts: n texts.
        vectors: Shape (n, d); only their directions count.
        labels: Cluster of each text, shape (n,).
        top: Maximum number of texts per cluster.

    Returns:
        k lists of row numbers, the most central first; equal texts are listed once.
    """
    central_rows = []
    for cluster in range(int(labels.max()) + 1 if len(labels) else 0):
        rows = np.flatnonzero(labels == cluster)
        directions = normalize_vectors(vectors[rows])
        closeness = directions @ directions.mean(axis=0)
        distinct: dict[str, int] = {}
        for row in rows[np.argsort(-closeness.astype(np.float64).round(9), kind="stable")]:
            distinct.setdefault(texts[row].strip(), int(row))
            if len(distinct) == top:
                break
        central_rows.append(list(distinct.values()))
    return central_rows


def compute_mean_differences(vectors: NDArray[np.float32], labels: Labels) -> NDArray[np.float32]:
    """Compute each cluster's mean minus the corpus mean, which the authors' code decodes with the language-model head.

    Args:
        vectors: Shape (n, d), as the model returned them.
        labels: Cluster of each text, shape (n,).

    Returns:
        float32, shape (k, d).
    """
    means = [vectors[labels == cluster].mean(axis=0) for cluster in range(int(labels.max()) + 1)]
    differences: NDArray[np.float32] = (np.stack(means) - vectors.mean(axis=0)).astype(np.float32)
    return differences


def measure_agreement(labels: Labels, given_labels: Sequence[Any]) -> LabelAgreement:
    """Compare clusters with a label column (paper, table 3).

    Args:
        labels: Cluster of each text, shape (n,).
        given_labels: Label of each text; missing values and blanks count as no label.

    Returns:
        Composition and entropy of each cluster, and the V-measure; texts without a label count in neither measure.
    """
    from sklearn.metrics import v_measure_score

    names = np.array([NO_LABEL if is_blank(label) else str(label).strip() for label in given_labels], dtype=object)
    labelled = names != NO_LABEL
    composition, entropy = [], []
    for cluster in range(int(labels.max()) + 1):
        counts = Counter(names[labels == cluster])
        blank_count = counts.pop(NO_LABEL, 0)
        shares = np.array(list(counts.values())) / max(1, counts.total())
        composition.append(dict(counts.most_common()) | ({NO_LABEL: blank_count} if blank_count else {}))
        entropy.append(float(max(0.0, -(shares * np.log2(shares)).sum())))
    v_measure = float(v_measure_score(names[labelled].tolist(), labels[labelled])) if labelled.any() else 0.0
    return LabelAgreement(composition, entropy, v_measure, int((~labelled).sum()))
