#!/usr/bin/env python3
"""Measure groups of texts in other languages, neighbours across languages, and which texts the language check warns about.

    python -m scripts.bench.languages groups DATA        (20 minutes on 2 cores; writes evaluation/results/languages.json)
    python -m scripts.bench.languages check DATA         (writes scripts/results/language_check.json)

``groups``: DATA holds the open training sets, of which only rows that no recipe trains are read, and xquad_parallel.jsonl.gz
(scripts/data/make_parallel.py). Each language is grouped by itself: the V-measure of k-means, with as many groups as labels.
Neighbours: whether the nearest text of all has the same content, and whether it has the same language. ``check``: the share of
texts that inbedder.encoding.language_check finds unreadable, among texts written in several languages and English corpora; DATA
holds one folder per corpus, with .jsonl.gz files whose rows have a column "text".
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from inbedder import InBedder
from inbedder.encoding.language_check import is_unreadable
from inbedder.io.tables import read_rows
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

Row = dict[str, Any]
MIN_TEXTS, MAX_TEXTS = 60, 400
"""Minimum and maximum number of texts of a language."""
MAX_CORPUS_TEXTS = 1000
"""Texts of a corpus of the language check, sampled with seed 0."""
ASPECTS = (
    ("intent", "xsid_language_intent", {"kind": "intent", "split": "test"}, "What does the user want?"),
    ("sentiment", "nusax_language_sentiment", {"kind": "sentiment", "split": "test"}, "Is the text positive or negative?"),
    ("topic", "hinglish_code_switching", {"kind": "domain", "split": "test"}, "What is the request about?"),
    ("topic", "crosswoz_dialogue_acts_zh", {"kind": "domain", "split": "test"}, "Which service is being talked about?"),
    ("formality", "cocoa_mt_formality", {"kind": "formality", "split": "test"}, "Is the text formal or informal?"),
    ("formality", "informal_indic_formality", {"kind": "formality", "split": "test"}, "Is the text formal or informal?"),
    ("politeness", "tydip_politeness", {"kind": "politeness", "split": "test"}, "How polite is the text?"),
    ("kind of sentence", "3i4k_korean_sentence_types", {"split": "test"}, "Is this a question, a command or a statement?"),
    ("reading level", "deplain_german_levels", {"split": "test"}, "Is the language easy or hard?"),
)
"""Aspect, set, filter and question."""
PARALLEL = (
    ("XQuAD paragraphs, left out", "xquad_parallel", {"kind": "topic", "split": "dev"}),
    ("xSID requests, test", "xsid_language_intent", {"kind": "intent", "split": "test"}),
    ("NusaX posts, local languages of Indonesia", "nusax_language_sentiment", {"kind": "language"}),
)
QUESTIONS = {"content": "What is the text about?", "language": "Which language is it?"}


def read_texts(folder: Path, name: str, keep: dict[str, str]) -> dict[str, list[Row]]:
    """Read the rows of a set that pass a filter, one row per text, by language."""
    languages: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in read_rows(str(folder / f"{name}.jsonl.gz")):
        if all(row.get(key) == value for key, value in keep.items()):
            language = row["domain"] if name != "hinglish_code_switching" else "Hindi mixed with English"
            languages[language].setdefault(row["input"], row)
    return {language: list(rows.values())[:MAX_TEXTS] for language, rows in sorted(languages.items())}


def encode(model: InBedder, texts: list[str], question: str | None) -> NDArray[Any]:
    """Encode texts as unit vectors."""
    vectors = np.asarray(model.encode([text[:1000] for text in texts], question, show_progress_bar=False), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def group(vectors: NDArray[Any], labels: list[str]) -> float:
    """Group vectors and compare with labels: V-measure, 0 to 100, the mean of three seeds."""
    count = len(set(labels))
    scores = [v_measure_score(labels, KMeans(count, n_init=3, random_state=seed).fit_predict(vectors)) for seed in range(3)]
    return 100 * mean(scores)


def measure_aspects(model: InBedder, folder: Path, *, asks: bool) -> dict[str, dict[str, float]]:
    """Measure each aspect in each language."""
    results = {}
    for aspect, name, keep, question in ASPECTS:
        scores = {}
        for language, rows in read_texts(folder, name, keep).items():
            labels = [row["output"] for row in rows]
            if len(rows) >= MIN_TEXTS and len(set(labels)) > 1:
                vectors = encode(model, [row["input"] for row in rows], question if asks else None)
                scores[language] = round(group(vectors, labels), 1)
        results[f"{aspect}, {name}"] = {"mean": round(mean(scores.values()), 1), **scores}
    return results


def measure_parallel(model: InBedder, folder: Path, *, asks: bool) -> dict[str, dict[str, dict[str, float]]]:
    """Measure whether the nearest neighbour of a text has its content, or its language."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for label, name, keep in PARALLEL:
        rows = [row for rows in read_texts(folder, name, keep).values() for row in rows]
        contents, languages = (np.array([row[column] for row in rows]) for column in ("group", "domain"))
        has_partner = np.array([(contents == content).sum() > 1 for content in contents])
        results[label] = {}
        for kind, question in QUESTIONS.items():
            vectors = encode(model, [row["input"] for row in rows], question if asks else None)
            cosines = vectors @ vectors.T
            np.fill_diagonal(cosines, -2)
            nearest = cosines.argmax(1)
            elsewhere = np.where(languages[:, None] == languages[None], -2, cosines).argmax(1)
            results[label][kind] = {
                "same_content": round(100 * float((contents[nearest] == contents)[has_partner].mean()), 1),
                "same_content_in_another_language": round(100 * float((contents[elsewhere] == contents)[has_partner].mean()), 1),
                "same_language": round(100 * float((languages[nearest] == languages).mean()), 1),
                "groups_by_language": round(group(vectors, list(languages)), 1),
            }
            if not asks:
                break
    return results


def measure_groups(folder: Path, output: Path, models: list[str], base: str) -> dict[str, Any]:
    """Measure each model with its questions, and the base without; the file keeps other models."""
    results = json.loads(output.read_text(encoding="utf-8"))["models"] if output.exists() else {}
    for name in (base, *models):
        model, asks = InBedder(name), name != base
        results[Path(name).name] = {
            "aspects": measure_aspects(model, folder, asks=asks),
            "parallel": measure_parallel(model, folder, asks=asks),
        }
        print(json.dumps({name: results[Path(name).name]}, indent=1), flush=True)
    return {"models": results}


def load_corpora(folder: Path) -> dict[str, list[str]]:
    """Load a sample of English texts of each corpus."""
    texts_by_corpus = {}
    for corpus in sorted(folder.iterdir()):
        files = sorted(corpus.glob("*.jsonl.gz"), key=lambda path: ("test" not in path.name, path.name))
        texts = [row["text"] for row in read_rows(str(files[0])) if isinstance(row.get("text"), str)] if files else []
        if texts:
            texts_by_corpus[corpus.name] = random.Random(0).sample(texts, min(MAX_CORPUS_TEXTS, len(texts)))
    return texts_by_corpus


def measure_check(folder: Path, models: list[str]) -> dict[str, Any]:
    """Measure the share of unreadable texts for each model's tokenizer."""
    sets = json.loads((ROOT / "tests/data/languages.json").read_text(encoding="utf-8")) | load_corpora(folder)
    shares: dict[str, dict[str, float]] = {}
    for name in models:
        tokenizer = InBedder(name).tokenizer.tokenizer
        shares[name] = {
            corpus: round(sum(is_unreadable(text, tokenizer) for text in texts) / len(texts), 4) for corpus, texts in sets.items()
        }
    return {"texts": {name: len(texts) for name, texts in sets.items()}, "unreadable_share": shares}


def main() -> None:
    """Measure groups or the language check, and write."""
    parser = make_parser(__doc__, None)
    parser.add_argument("part", choices=["groups", "check"])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument(
        "--model", action="append", help="may repeat; default: mini and multilingual, for the check mini and small"
    )
    parser.add_argument("--base", default="multilingual-e5-small", help="a model that encodes without a question")
    options = parser.parse_args()
    if options.part == "groups":
        output = options.output or ROOT / "evaluation/results/languages.json"
        results = measure_groups(options.data, output, options.model or ["mini", "multilingual"], options.base)
    else:
        output = options.output or RESULTS / "language_check.json"
        results = measure_check(options.data, options.model or ["mini", "small"])
    write_results(output, {**describe_run(options), **results})


if __name__ == "__main__":
    main()
