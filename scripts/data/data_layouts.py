"""Read data sets as their repositories store them, one reader per file layout; readers yield the rows that tasks read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Rows = Iterator[dict[str, Any]]
Layout = Callable[[Sequence[Path]], Rows]
MAX_MENTIONS = 20_000
"""Number of sampled mentions of Few-NERD."""
POLARITIES = ("negative", "neutral", "positive")


def read_text(path: Path) -> str:
    """Read a file as UTF-8, or as Latin-1 when it is not valid UTF-8."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file, split at line feeds only."""
    return read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_table(path: Path, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> list[dict[str, str]]:
    """Read the rows of a table whose first line names the columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))


def _read_stsb(files: Sequence[Path]) -> Rows:
    with files[0].open(encoding="utf-8", newline="") as file:
        for first, second, score in csv.reader(file):
            yield {"sentence1": first, "sentence2": second, "score": float(score)}


def _read_sick(files: Sequence[Path]) -> Rows:
    for row in read_table(files[0], "\t", csv.QUOTE_NONE):
        yield {"sentence1": row["sentence_A"], "sentence2": row["sentence_B"], "score": float(row["relatedness_score"])}


def _read_sts(files: Sequence[Path]) -> Rows:
    """Read tables of score and two sentences, or SemEval's pairs of files with sentences and (STS.gs...) scores."""
    for path in (path for path in files if ".gs." not in path.name):
        lines = [line.split("\t") for line in read_lines(path)]
        if ".input." in path.name:
            scores = read_lines(path.with_name(path.name.replace(".input.", ".gs.")))
            lines = [[score, *line] for score, line in zip(scores, lines, strict=True)]
        for score, first, second, *_ in lines:
            if score.strip():
                yield {"sentence1": first.strip(), "sentence2": second.strip(), "score": float(score)}


def _read_mrpc(files: Sequence[Path]) -> Rows:
    for row in read_table(files[0], "\t", csv.QUOTE_NONE):
        yield {"sentence1": row["#1 String"], "sentence2": row["#2 String"], "label": int(row["Quality"])}


def _read_amazon(files: Sequence[Path]) -> Rows:
    """Read reviews between tags that are not valid XML, domain by domain, positive ones first."""
    for path in sorted(files, key=lambda path: (path.parent.name, path.name != "positive.review")):
        content = path.read_bytes().decode("utf-8", errors="replace")
        for review in re.findall(r"<review>(.*?)</review>", content, re.DOTALL):
            text = re.search(r"<review_text>(.*?)</review_text>", review, re.DOTALL)
            if text:
                yield {"text": text[1].strip(), "domain": path.parent.name, "polarity": path.name.partition(".")[0]}


def _read_airline(files: Sequence[Path]) -> Rows:
    for row in read_table(files[0]):
        labels = {"airline": row["airline"], "sentiment": row["airline_sentiment"]}
        yield {"id": row["tweet_id"], "text": row["text"], **labels, "negative_reason": row["negativereason"] or None}


def _read_acos(files: Sequence[Path]) -> Rows:
    """Read lines of a text and its tab-separated quadruples: span of the aspect, category, polarity, span of the opinion."""
    for line in read_lines(files[0]):
        text, *quadruples = line.split("\t")
        parts = [quadruple.split() for quadruple in quadruples if quadruple]
        sentiments = sorted({POLARITIES[int(polarity)] for _, _, polarity, _ in parts})
        yield {"text": text, "categories": sorted({category for _, category, _, _ in parts}), "sentiments": sentiments}


def _read_mams(files: Sequence[Path]) -> Rows:
    """Read sentences with the polarity of each category that they mention."""
    for path in files:
        for sentence in ElementTree.parse(path).iter("sentence"):
            polarities = {
                category.attrib["category"]: category.attrib["polarity"] for category in sentence.iter("aspectCategory")
            }
            yield {"text": sentence.findtext("text"), **polarities}


def _read_multiwoz(files: Sequence[Path]) -> Rows:
    """Read the utterances of the training set that have one dialogue act and one domain."""
    for row in _read_as_is(files):
        if row["kind"] == "dialogue_act" and "," not in row["output"] and row.get("domain"):
            yield {"text": row["input"], "dialogue_act": row["output"], "domain": row["domain"]}


def _read_onestop(files: Sequence[Path]) -> Rows:
    """Read the paragraphs of the training set with their reading level and article; group is the article and a number."""
    for row in _read_as_is(files):
        if row["kind"] == "reading_level":
            yield {"text": row["input"], "level": row["level"], "article": row["group"].rpartition("-")[0]}


def _read_csts(files: Sequence[Path]) -> Rows:
    """Read the training table of the re-annotation from its archive."""
    with zipfile.ZipFile(files[0]) as archive, archive.open("dataset/csts_train_reannotated.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8-sig", newline="")):
            yield {**row, "label": float(row["label"])}


def _read_clinc(files: Sequence[Path]) -> Rows:
    rows, domains = (json.loads(read_text(path)) for path in files)
    domain_of = {intent: domain for domain, intents in domains.items() for intent in intents}
    for text, intent in rows["test"]:
        yield {"text": text, "intent": intent, "domain": domain_of[intent]}


def _read_hwu(files: Sequence[Path]) -> Rows:
    for path in files:
        for row in read_table(path, ";"):
            labels = {"scenario": row["scenario"], "intent": row["intent"], "label": f"{row['scenario']}_{row['intent']}"}
            yield {"id": row["answerid"], "text": row["answer_from_anno"], "text_user": row["answer_from_user"], **labels}


def _read_banking(files: Sequence[Path]) -> Rows:
    for row in read_table(files[0]):
        yield {"text": row["text"], "label": row["category"]}


def _read_newsgroups(files: Sequence[Path]) -> Rows:
    for path in files:
        head, _, body = read_text(path).replace("\r\n", "\n").partition("\n\n")
        subject = re.search(r"^Subject: *(.*)$", head, re.MULTILINE)
        fields = {"id": path.name, "label": path.parent.name, "subject": subject[1].strip() if subject else ""}
        yield {**fields, "text": body.strip()}


def _read_stackoverflow(files: Sequence[Path]) -> Rows:
    for text, label in zip(*map(read_lines, files), strict=True):
        yield {"text": text.strip(), "label": int(label)}


def _read_fewrel(files: Sequence[Path]) -> Rows:
    for relation, instances in json.loads(read_text(files[0])).items():
        for instance in instances:
            text, head, tail = " ".join(instance["tokens"]), instance["h"][0], instance["t"][0]
            prompt = f"{text} The relation between {head} and {tail}."
            yield {"text": text, "head": head, "tail": tail, "relation": relation, "inbedder_style": prompt}


def _read_fewnerd(files: Sequence[Path]) -> Rows:
    """Read one row per mention (labels B-, I-), and sample some of them in the order of the file."""
    rows = []
    for lines in read_text(files[0]).strip().split("\n\n"):
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
            prompt = f"{text} The entity type of {entity}."
            rows.append({"text": text, "entity": entity, "fine": fine, "inbedder_style": prompt})
    indices = range(len(rows)) if len(rows) <= MAX_MENTIONS else sorted(random.Random(0).sample(range(len(rows)), MAX_MENTIONS))
    yield from (rows[index] for index in indices)


def _read_labelled_lines(files: Sequence[Path]) -> Rows:
    for line in read_lines(files[0]):
        label, _, text = line.partition(" ")
        yield {"text": text, "label": int(label)}


def _read_trec(files: Sequence[Path]) -> Rows:
    for line in read_lines(files[0]):
        fine, _, text = line.partition(" ")
        yield {"text": text.strip(), "coarse": fine.partition(":")[0], "fine": fine}


def _read_parquet(files: Sequence[Path]) -> Rows:
    import pyarrow.parquet

    for path in files:
        yield from pyarrow.parquet.read_table(path).to_pylist()


def _read_answerability(files: Sequence[Path]) -> Rows:
    """Read questions about sentences, and whether a sentence answers its question (label 0) or not (1)."""
    for row in json.loads(read_text(files[0]))["Instances"]:
        sentence, _, question = row["input"].removeprefix("Sentence:").partition("\nQuestion:")
        yield {"sentence": sentence.strip(), "question": question.strip(), "label": ["Yes.", "No."].index(row["output"][0])}


def _read_as_is(files: Sequence[Path]) -> Rows:
    """Read a JSON list, or one JSON object per line."""
    text = gzip.decompress(files[0].read_bytes()).decode() if files[0].suffix == ".gz" else read_text(files[0])
    yield from (
        json.loads(text) if text.lstrip().startswith("[") else (json.loads(line) for line in text.split("\n") if line.strip())
    )


LAYOUTS: dict[str, Layout] = {
    "stsb": _read_stsb,
    "sick": _read_sick,
    "sts": _read_sts,
    "mrpc": _read_mrpc,
    "amazon": _read_amazon,
    "airline": _read_airline,
    "acos": _read_acos,
    "mams": _read_mams,
    "multiwoz": _read_multiwoz,
    "onestop": _read_onestop,
    "csts": _read_csts,
    "clinc": _read_clinc,
    "hwu": _read_hwu,
    "banking": _read_banking,
    "newsgroups": _read_newsgroups,
    "stackoverflow": _read_stackoverflow,
    "fewrel": _read_fewrel,
    "fewnerd": _read_fewnerd,
    "labelled_lines": _read_labelled_lines,
    "trec": _read_trec,
    "parquet": _read_parquet,
    "answerability": _read_answerability,
    "as_is": _read_as_is,
}
"""Layout in ``data_sources.yaml`` -> function that reads the rows of a set's files, in their order."""
