"""Tiny data for mteb's own tasks, so that they run without a network."""

from datasets import Dataset, DatasetDict
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

TEXTS = [f"{animal} {place}" for animal in ("cats", "dogs", "birds") for place in ("at home", "outside", "in the rain", "asleep")]
LABELS = [label for label in (0, 1, 2) for _ in range(4)]


def _retrieval():
    corpus = [{"id": f"d{i}", "title": "", "text": text} for i, text in enumerate(TEXTS)]
    queries = [{"id": f"q{i}", "text": f"where are {text}"} for i, text in enumerate(TEXTS[:3])]
    relevant = {f"q{i}": {f"d{i}": 1} for i in range(3)}
    return RetrievalSplitData(
        corpus=Dataset.from_list(corpus), queries=Dataset.from_list(queries), relevant_docs=relevant, top_ranked=None
    )


def _reranking():
    data = _retrieval()
    ranked = {query: list(data["corpus"]["id"]) for query in data["relevant_docs"]}
    return RetrievalSplitData(**{**data, "top_ranked": ranked})


def _columns(**columns):
    return lambda: Dataset.from_dict(columns)


DATA = {
    "Retrieval": _retrieval,
    "Reranking": _reranking,
    "Classification": _columns(text=TEXTS, label=LABELS),
    "Clustering": _columns(sentences=[TEXTS], labels=[LABELS]),
    "PairClassification": _columns(sentence1=TEXTS, sentence2=TEXTS[1:] + TEXTS[:1], labels=[i % 2 for i in range(12)]),
    "STS": _columns(sentence1=TEXTS, sentence2=TEXTS[1:] + TEXTS[:1], score=[float(i % 5) for i in range(12)]),
    "Summarization": _columns(
        text=TEXTS[:2],
        human_summaries=[TEXTS[:2], TEXTS[2:4]],
        machine_summaries=[TEXTS[4:8], TEXTS[8:]],
        relevance=[[1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 2.0, 3.0]],
    ),
}


def fill(task):
    """Give a task of mteb tiny data of its kind."""
    split, subset = task.eval_splits[0], task.hf_subsets[0]
    data = DATA[task.metadata.type]()
    if task.metadata.type in ("Retrieval", "Reranking"):
        task.dataset = {subset: {split: data}}
    else:
        splits = DatasetDict({"train": data, split: data})
        task.dataset = splits if subset == "default" else {subset: splits}
    if task.metadata.type == "Classification":
        task.n_experiments, task.samples_per_label = 2, 2
    task.data_loaded = True
    return task
