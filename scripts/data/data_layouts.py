"""How the files of each set, as their repositories hold them, become the rows that tasks read. One function per form of file."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Rows = Iterator[dict[str, Any]]
Layout = Callable[[Sequence[Path]], Rows]
SAMPLED = 20_000
"""Mentions of Few-NERD that are kept."""
POLARITIES = ("negative", "neutral", "positive")


def text_of(path: Path) -> str:
    """A file's text: UTF-8, or Latin-1 where it is none."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def lines_of(path: Path) -> list[str]:
    """A file's lines, split at line feeds alone and without them."""
    return text_of(path).replace("\r\n", "\n").removesuffix("\n").split("\n")


def table_of(path: Path, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> list[dict[str, str]]:
    """The rows of a table whose first line names the columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))


def _stsb(files: Sequence[Path]) -> Rows:
    with files[0].open(encoding="utf-8", newline="") as file:
        for first, second, score in csv.reader(file):
            yield {"sentence1": first, "sentence2": second, "score": float(score)}


def _sick(files: Sequence[Path]) -> Rows:
    for row in table_of(files[0], "\t", csv.QUOTE_NONE):
        yield {"sentence1": row["sentence_A"], "sentence2": row["sentence_B"], "score": float(row["relatedness_score"])}


def _sts(files: Sequence[Path]) -> Rows:
    """Tables of score and two sentences; or SemEval's own pair of files, the sentences and (STS.gs...) the scores."""
    for path in (path for path in files if ".gs." not in path.name):
        lines = [line.split("\t") for line in lines_of(path)]
        if ".input." in path.name:
            scores = lines_of(path.with_name(path.name.replace(".input.", ".gs.")))
            lines = [[score, *line] for score, line in zip(scores, lines, strict=True)]
        for score, first, second, *_ in lines:
            if score.strip():
                yield {"sentence1": first.strip(), "sentence2": second.strip(), "score": float(score)}


def _mrpc(files: Sequence[Path]) -> Rows:
    for row in table_of(files[0], "\t", csv.QUOTE_NONE):
        yield {"sentence1": row["#1 String"], "sentence2": row["#2 String"], "label": int(row["Quality"])}


def _amazon(files: Sequence[Path]) -> Rows:
    """Reviews between tags, which are no XML; positive ones first, domain by domain."""
    for path in sorted(files, key=lambda path: (path.parent.name, path.name != "positive.review")):
        content = path.read_bytes().decode("utf-8", errors="replace")
        for review in re.findall(r"<review>(.*?)</review>", content, re.DOTALL):
            text = re.search(r"<review_text>(.*?)</review_text>", review, re.DOTALL)
            if text:
                yield {"text": text[1].strip(), "domain": path.parent.name, "polarity": path.name.partition(".")[0]}


def _airline(files: Sequence[Path]) -> Rows:
    for row in table_of(files[0]):
        about = {"airline": row["airline"], "sentiment": row["airline_sentiment"]}
        yield {"id": row["tweet_id"], "text": row["text"], **about, "negative_reason": row["negativereason"] or None}


def _acos(files: Sequence[Path]) -> Rows:
    """A text and, behind tabs, its quadruples: span of the aspect, category, polarity, span of the opinion."""
    for line in lines_of(files[0]):
        text, *quadruples = line.split("\t")
        parts = [quadruple.split() for quadruple in quadruples if quadruple]
        sentiments = sorted({POLARITIES[int(polarity)] for _, _, polarity, _ in parts})
        yield {"text": text, "categories": sorted({category for _, category, _, _ in parts}), "sentiments": sentiments}


def _clinc(files: Sequence[Path]) -> Rows:
    rows, domains = (json.loads(text_of(path)) for path in files)
    domain_of = {intent: domain for domain, intents in domains.items() for intent in intents}
    for text, intent in rows["test"]:
        yield {"text": text, "intent": intent, "domain": domain_of[intent]}


def _hwu(files: Sequence[Path]) -> Rows:
    for path in files:
        for row in table_of(path, ";"):
            about = {"scenario": row["scenario"], "intent": row["intent"], "label": f"{row['scenario']}_{row['intent']}"}
            yield {"id": row["answerid"], "text": row["answer_from_anno"], "text_user": row["answer_from_user"], **about}


def _banking(files: Sequence[Path]) -> Rows:
    for row in table_of(files[0]):
        yield {"text": row["text"], "label": row["category"]}


def _newsgroups(files: Sequence[Path]) -> Rows:
    for path in files:
        head, _, body = text_of(path).replace("\r\n", "\n").partition("\n\n")
        subject = re.search(r"^Subject: *(.*)$", head, re.MULTILINE)
        about = {"id": path.name, "label": path.parent.name, "subject": subject[1].strip() if subject else ""}
        yield {**about, "text": body.strip()}


def _stackoverflow(files: Sequence[Path]) -> Rows:
    for text, label in zip(*map(lines_of, files), strict=True):
        yield {"text": text.strip(), "label": int(label)}


def _fewrel(files: Sequence[Path]) -> Rows:
    for relation, instances in json.loads(text_of(files[0])).items():
        for instance in instances:
            text, head, tail = " ".join(instance["tokens"]), instance["h"][0], instance["t"][0]
            asked = f"{text} The relation between {head} and {tail}."
            yield {"text": text, "head": head, "tail": tail, "relation": relation, "inbedder_style": asked}


def _fewnerd(files: Sequence[Path]) -> Rows:
    """One row per mention (B- begins it, I- goes on), a drawn part of them in the order of the file."""
    rows = []
    for lines in text_of(files[0]).strip().split("\n\n"):
        tokens = [line.split("\t") for line in lines.split("\n")]
        text = " ".join(token for token, _ in tokens)
        mentions: list[tuple[str, list[str]]] = []
        for token, label in tokens:
            if label.startswith("B-"):
                mentions.append((label[2:], [token]))
            elif label.startswith("I-") and mentions:
                mentions[-1][1].append(token)
        for fine, words in mentions:
            entity = " ".join(words)
            asked = f"{text} The entity type of {entity}."
            rows.append({"text": text, "entity": entity, "fine": fine, "inbedder_style": asked})
    kept = range(len(rows)) if len(rows) <= SAMPLED else sorted(random.Random(0).sample(range(len(rows)), SAMPLED))
    yield from (rows[place] for place in kept)


def _labelled_lines(files: Sequence[Path]) -> Rows:
    for line in lines_of(files[0]):
        label, _, text = line.partition(" ")
        yield {"text": text, "label": int(label)}


def _trec(files: Sequence[Path]) -> Rows:
    for line in lines_of(files[0]):
        fine, _, text = line.partition(" ")
        yield {"text": text.strip(), "coarse": fine.partition(":")[0], "fine": fine}


def _as_is(files: Sequence[Path]) -> Rows:
    """A list in json, or an object per line."""
    text = gzip.decompress(files[0].read_bytes()).decode() if files[0].suffix == ".gz" else text_of(files[0])
    yield from (
        json.loads(text) if text.lstrip().startswith("[") else (json.loads(line) for line in text.split("\n") if line.strip())
    )


LAYOUTS: dict[str, Layout] = {
    "stsb": _stsb,
    "sick": _sick,
    "sts": _sts,
    "mrpc": _mrpc,
    "amazon": _amazon,
    "airline": _airline,
    "acos": _acos,
    "clinc": _clinc,
    "hwu": _hwu,
    "banking": _banking,
    "newsgroups": _newsgroups,
    "stackoverflow": _stackoverflow,
    "fewrel": _fewrel,
    "fewnerd": _fewnerd,
    "labelled_lines": _labelled_lines,
    "trec": _trec,
    "as_is": _as_is,
}
"""Name in ``data_sources.yaml`` -> the rows of a set's files, in their order."""
