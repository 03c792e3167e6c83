"""Tiny models and data in place of those that the papers' commands name."""

import gzip
import json

import pandas as pd

from inbedder_evaluation.tasks.sets import read_sets

FAMILIES = {"causal": "long-opt", "masked": "long-roberta", "seq2seq": "long-t5", "pairs": "long-roberta"}
"""The tiny family of each kind of language model; all other kinds are sentence-transformers checkpoints."""
SHORT_TRAINING = {"training.max_steps": "1", "training.batch_size": "4"}
"""Settings that make a training short."""
SHORT = {
    "answering": {"training.micro_batch": "4"},
    "contrastive": {"max_length": "96"},
    "conditional": {"encoding.max_length": "64"},
}
"""Further settings of each method."""
TASK_FILE = """
DESCRIPTION = {
    "name": "%sClustering",
    "hf_hub_name": "BrandonZYW/%sClustering",
    "instruction": "What is it?",
    "correct_instructions": ["What is it?"],
    "implicit_instructions": ["What?"],
    "incorrect_instructions": ["Where?"],
}
"""


def make_rows(count=24):
    """Make rows with the columns of all sets."""
    rows = []
    for i in range(count):
        animal, place = ("cats", "dogs")[i % 2], ("at home", "outside")[i // 2 % 2]
        text, paraphrase = f"I love {animal} {place} {i}", f"They keep {animal} {place} {i}"
        row = dict.fromkeys(("text", "text_user", "subject", "inbedder_style", "sentence1", "hyp", "question", "input"), text)
        row |= dict.fromkeys(("domain", "negative_reason", "categories", "scenario", "cluster", "article", "food"), animal)
        row |= dict.fromkeys(("intent", "polarity", "airline", "sentiments", "coarse", "fine", "relation"), place)
        row |= {"level": place, "dialogue_act": place, "staff": place, "condition": "the animal"}
        row |= {"anchor": text, "positive": paraphrase, "negative": f"no {animal} {i}", "sentence2": paraphrase, "output": animal}
        row |= {"instruction": "What animals do they love?", "sql_template": f"SELECT {place}", "refs": [paraphrase]}
        row |= {"title": animal, "content": text, "activity_label": animal, "ctx_a": text, "ctx_b": "", "sentence": text}
        row |= {"endings": [f"{word} {place}" for word in ("cats", "dogs", "they", "we")]}
        rows.append({**row, "label": i % 2, "score": i % 2, "human_score": i % 5, "seg_id": i, "set_id": 0})
    return rows


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def write_data(folder):
    """Write the folder that the commands call {data}."""
    rows = make_rows()
    rated = [{**row, "label": 1 + row["label"]} for row in rows]
    for known_set in read_sets():
        for file in (known_set.file, known_set.train):
            if file and not known_set.shipped and known_set.kind != "reranking":
                rows_of_set = make_rows(280) if known_set.file == known_set.train else rows
                write_lines(folder / file, rated if known_set.kind == "conditional sts" else rows_of_set)
        if known_set.kind == "text evaluation":
            write_lines((folder / known_set.file).with_name("references.jsonl.gz"), rows)
    medi = [
        {
            "query": ["Represent the question: ", row["sentence1"]],
            "pos": [("Represent the sentence: ", "Represent the question: ")[i % 2], row["sentence2"]],
            "neg": ["Represent the sentence: ", row["negative"]],
            "task_id": i // 8,
        }
        for i, row in enumerate(rows)
    ]
    (folder / "medi-data.json").write_text(json.dumps(medi))
    (folder / "qa_collection.json").write_text(json.dumps(rows))
    (folder / "table4.txt").write_text("I love cats\nI love dogs\n")
    (folder / "yelp.csv").write_text("text\n" + "\n".join(row["text"] for row in rows))
    (folder / "glue" / "stsb").mkdir(parents=True)
    table = pd.DataFrame(rows)
    for split in ("train", "validation", "test"):
        pairs = [
            {
                **row,
                "sentence1": f"{split}: {row['sentence1']}",
                "condition": condition,
                "label": -1 if split == "test" else 1 + (i + shift) % 5,
            }
            for i, row in enumerate(rows)
            for shift, condition in enumerate(("animal", "place"))
        ]
        columns = ["sentence1", "sentence2", "condition", "label"]
        pd.DataFrame(pairs)[columns].to_csv(folder / f"csts_{split}.csv", index=False)
        pairs_table = table[["sentence1", "sentence2"]].assign(label=[float(i % 6) for i in range(len(rows))])
        pairs_table.to_parquet(folder / "glue" / "stsb" / f"{split}-00000-of-00001.parquet")
    for name in ("NYTTopic", "Feedbacks", "RateMyProf", "FewRel", "FewNerd", "FewEvent"):
        path = folder / "InBedder" / "mteb" / "tasks" / "Clustering" / f"{name}Clustering.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TASK_FILE % (name, name))
    authors = folder / "authors"
    authors.mkdir()
    words = {word: 1.0 for word in ("cats", "dogs")}
    run = {"clusters": {"0": ["cats"] * 3, "1": ["dogs"] * 3}, "keywords": {"0": words, "1": words}}
    (authors / "explain_keywords.json").write_text(json.dumps({"run": run}))
    (authors / "explain_entropy.json").write_text(json.dumps({"run": [{"components": {"a": 2, "b": 2}, "entropy": 1.0}]}))
