"""One self-contained HTML page: maps, groups and examples of one corpus under one or several instructions.

The page holds its style, its script and its data and needs no network; a content security policy forbids any. Texts are
untrusted: the template escapes them, and the script only ever sets text content.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, TemplateError
from inbedder.files import atomic_write
from inbedder.prompting import resolve_instruction
from inbedder.tokenization import clean_text
from inbedder.vectors import unit

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult

MAX_DOTS = 5000
TSNE_RANGE = range(10, 3001)
WIDTH, HEIGHT, MARGIN = 640, 480, 26
DOT_TEXT, EXAMPLE_TEXT, ANSWER_TEXT = 200, 240, 80
TOP_ANSWERS, TOP_EXAMPLES, TOP_LABELS = 6, 5, 5
SHAPES, GROUPS_PER_SHAPE = 4, 6
# Twelve colours each for light and dark paper: at least 3:1 against it, and apart in OKLab under simulated protanopia,
# deuteranopia and tritanopia (Machado et al. 2009). Dots also change their shape with every GROUPS_PER_SHAPE groups.
LIGHT = "#2f6bd0 #fd5b62 #30a57d #6e2680 #a48018 #75331e #8588ff #bc2993 #566a0a #d075be #2a30b9 #a5585a".split()
DARK = "#6ea2ff #f3b683 #41a87b #c991c3 #a3bc2a #b84007 #7ed2c2 #775bca #b5851a #bd518a #2785ae #357546".split()

Points = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """A cluster as the page shows it."""

    name: str
    colour: int
    shape: int
    size: int
    share: float
    keywords: list[str]
    answers: list[tuple[str, int]]
    examples: list[str]
    head_words: list[str]
    labels: list[tuple[str, list[tuple[str, int, float]], float]]
    """Each column of labels: name, (label, texts, share of the cluster) with the rest as one entry at the end, and entropy."""
    badge: tuple[float, float] | None
    """Where its number stands on the map; None when the sample holds none of its texts."""


@dataclass(frozen=True)
class _View:
    """The corpus under one instruction."""

    question: str
    groups: list[_Group]
    dots: list[tuple[float, float, int]]
    """(x, y, cluster) of each text on the map."""
    method: str
    v_measures: list[tuple[str, float]]
    """Of each column of labels."""
    notes: list[str]


def save_report(results: Sequence[ClusterResult], path: str | os.PathLike[str], *, title: str = "inbedder report") -> None:
    """Write the page of one or several groupings of one corpus.

    Args:
        results: One grouping an instruction, all of the same texts.
        path: The page's file; an existing one is replaced only when the whole page is there.
        title: Heading of the page.

    Raises:
        InputError: When there is nothing to report, the texts differ, or the file cannot be written.
    """
    page = render_report(results, title=title)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def render_report(results: Sequence[ClusterResult], *, title: str = "inbedder report") -> str:
    """Make the page of one or several groupings of one corpus.

    Args:
        results: One grouping an instruction, all of the same texts.
        title: Heading of the page.

    Returns:
        The HTML, which encodes as UTF-8.

    Raises:
        InputError: When there is nothing to report, or the texts differ.
    """
    from jinja2 import Environment, StrictUndefined

    if not results or not results[0].texts:
        raise InputError("There is nothing to report: cluster at least one text under at least one instruction.")
    texts = results[0].texts
    if any(result.texts != texts for result in results):
        raise InputError("The results are about different texts; a report compares groupings of one corpus.")
    rows = np.random.default_rng(0).permutation(len(texts))[:MAX_DOTS]  # shuffled, so that no group is always drawn on top
    views = [_view(result, rows) for result in results]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters["sha256"] = _sha256
    template = environment.from_string(files("inbedder.grouping.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        title=title,
        total=len(texts),
        shown=len(rows),
        views=views,
        pairs=[(views[i], views[j], *_cross_table(results[i], results[j])) for i, j in combinations(range(len(views)), 2)],
        answered=any(any(result.answers) for result in results),
        data=_data(results, views, rows),
        light=LIGHT,
        dark=DARK,
        size=(WIDTH, HEIGHT),
        radius=float(np.clip(74 / np.sqrt(len(rows)), 2.4, 6.0)),
    )
    return clean_text(page)


def project(vectors: NDArray[np.float32]) -> tuple[Points, str]:
    """Lay vectors out on a plane.

    Args:
        vectors: Shape (n, d), n at least 1; only their directions count.

    Returns:
        Points, shape (n, 2), their longer extent first, and how they were found: "t-SNE" for 10 to 3000 vectors, else "PCA",
        or "none" when the vectors are all alike.
    """
    directions = np.asarray(unit(vectors), dtype=np.float64)
    directions = np.pad(directions, ((0, 0), (0, max(0, 2 - directions.shape[1]))))
    count = len(directions)
    if np.ptp(directions, axis=0).max() < 1e-6:
        return np.zeros((count, 2)), "none"
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if count in TSNE_RANGE:
        tsne = TSNE(init="pca", perplexity=min(30.0, (count - 1) / 3), random_state=0)
        points, method = tsne.fit_transform(directions), "t-SNE"
    else:
        points, method = PCA(2, random_state=0).fit_transform(directions), "PCA"
    points = np.asarray(points - points.mean(axis=0), dtype=np.float64)
    return points @ np.linalg.svd(points, full_matrices=False)[2].T, method


def _view(result: ClusterResult, rows: NDArray[np.int64]) -> _View:
    points, method = project(result.embeddings[rows])
    box = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    scale = (box / np.maximum(np.ptp(points, axis=0), 1e-9)).min()
    placed = ((points - (points.max(axis=0) + points.min(axis=0)) / 2) * scale + np.array([WIDTH, HEIGHT]) / 2).round(1)
    labels = result.labels[rows]
    return _View(
        question=_question(result.instruction),
        groups=[_group(result, cluster, placed[labels == cluster]) for cluster in range(len(result.keywords))],
        dots=[(*place, label) for place, label in zip(placed.tolist(), labels.tolist(), strict=True)],
        method=method,
        v_measures=[(name, agreement.v_measure) for name, agreement in result.label_agreements.items()],
        notes=result.notes,
    )


def _group(result: ClusterResult, cluster: int, points: Points) -> _Group:
    members = np.flatnonzero(result.labels == cluster)
    labels = [(name, _shares(each.composition[cluster]), each.entropy[cluster]) for name, each in result.label_agreements.items()]
    return _Group(
        name=_clip(result.names[cluster], ANSWER_TEXT),
        colour=cluster % len(LIGHT),
        shape=cluster // GROUPS_PER_SHAPE % SHAPES,
        size=len(members),
        share=100 * len(members) / len(result.texts),
        keywords=[_clip(word, ANSWER_TEXT) for word in result.keywords[cluster]],
        answers=_frequent(result.answers[i] for i in members) if any(result.answers) else [],
        examples=[_clip(text, EXAMPLE_TEXT) for text in result.examples[cluster][:TOP_EXAMPLES]],
        head_words=list(result.head_words[cluster]) if result.head_words else [],
        labels=labels,
        badge=_badge(points),
    )


def _badge(points: Points) -> tuple[float, float] | None:
    """The dot nearest to the middle of a group; the number is lifted off where there are few dots to cover."""
    if not len(points):
        return None
    x, y = points[np.linalg.norm(points - np.median(points, axis=0), axis=1).argmin()]
    return float(x), round(float(y) - (17 if len(points) < 8 else 0), 1)


def _frequent(answers: Iterable[str]) -> list[tuple[str, int]]:
    """The most frequent answers, whatever their case, in the spelling that came first."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for answer in answers:
        shown = _clip(answer, ANSWER_TEXT) or "(no answer)"
        counts[shown.casefold()] += 1
        spelling.setdefault(shown.casefold(), shown)
    return [(spelling[key], count) for key, count in counts.most_common(TOP_ANSWERS)]


def _shares(composition: dict[str, int]) -> list[tuple[str, int, float]]:
    total = sum(composition.values())
    entries = sorted(((_clip(label, ANSWER_TEXT), count) for label, count in composition.items()), key=lambda e: -e[1])
    if len(entries) > TOP_LABELS + 1:
        rest = entries[TOP_LABELS:]
        entries = [*entries[:TOP_LABELS], (f"{len(rest)} others", sum(count for _, count in rest))]
    return [(label, count, 100 * count / total) for label, count in entries]


def _cross_table(left: ClusterResult, right: ClusterResult) -> tuple[list[list[int]], float]:
    """Texts in each pair of clusters, left by right, and the adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score

    counts = np.zeros((len(left.keywords), len(right.keywords)), dtype=np.int64)
    np.add.at(counts, (left.labels, right.labels), 1)
    return counts.tolist(), float(adjusted_rand_score(left.labels, right.labels))


def _data(results: Sequence[ClusterResult], views: Sequence[_View], rows: NDArray[np.int64]) -> dict[str, Any]:
    """What the page's script shows beside a dot."""
    return {
        "texts": [_clip(results[0].texts[row], DOT_TEXT) for row in rows],
        "views": [
            {
                "question": view.question,
                "names": [group.name for group in view.groups],
                "colours": [group.colour for group in view.groups],
                "dots": view.dots,
                "answers": [_clip(result.answers[row], ANSWER_TEXT) for row in rows],
            }
            for result, view in zip(results, views, strict=True)
        ],
    }


def _question(instruction: str) -> str:
    try:
        return resolve_instruction(instruction)
    except TemplateError:
        return instruction


def _clip(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters that encodes as UTF-8."""
    line = " ".join(clean_text(text[: 8 * limit]).split())
    return line if len(line) <= limit and len(text) <= 8 * limit else line[: limit - 1].rstrip() + "…"


def _sha256(script: object) -> str:
    """The script's hash, by which the page's content security policy allows it and no other."""
    return base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
