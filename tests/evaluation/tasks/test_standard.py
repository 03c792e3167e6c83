import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from inbedder.errors import InputError
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.sets import find_set, read_sets
from inbedder_evaluation.tasks.standard import load_mteb_task, load_standard_task
from tests.evaluation.tasks.test_tasks import ignorant, one_hot
from tests.evaluation.tasks.test_text_evaluation import write

PAIRS = [{"sentence1": f"one {i}", "sentence2": f"two {i}", "score": score} for i, score in enumerate([5, 1, 3, 3, 0, 2, 4])]


def cosines(rows):
    a, b = (ignorant([row[column] for row in rows], "") for column in ("sentence1", "sentence2"))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_sts_is_the_spearman_correlation_with_ties(tmp_path):
    write(tmp_path / "stsb" / "test.jsonl.gz", PAIRS)
    scores = load_standard_task("sts", "stsb", tmp_path).evaluate(ignorant)
    assert scores["cosine_spearman"] == pytest.approx(100 * spearmanr(cosines(PAIRS), [p["score"] for p in PAIRS]).statistic)


def test_pair_classification_is_the_average_precision_of_the_cosine(tmp_path):
    rows = [{**pair, "label": i % 2} for i, pair in enumerate(PAIRS)]
    write(tmp_path / "mrpc" / "test.jsonl.gz", rows)
    task = load_standard_task("pairs", "mrpc", tmp_path)
    expected = 100 * average_precision_score([row["label"] for row in rows], cosines(rows))
    assert task.evaluate(ignorant)["cosine_ap"] == pytest.approx(expected)


def test_clustering_gives_an_oracle_a_hundred_and_asks_once(tmp_path):
    rows = [{"text": f"{label} {i}", "label": label} for label in "abc" for i in range(10)]
    write(tmp_path / "banking77" / "test.jsonl.gz", rows)
    task = load_standard_task("clustering", "banking77", tmp_path)
    prompts = []

    def oracle(texts, instruction):
        prompts.append(instruction)
        return one_hot([text[0] for text in texts])

    assert task.seeded
    assert task.evaluate(oracle, seed=3)["v_measure"] == pytest.approx(100)
    assert prompts == ["What does the customer need?"]
    assert task.evaluate(ignorant, seed=0) == task.evaluate(ignorant, seed=0)
    assert task.evaluate(ignorant, seed=0) != task.evaluate(ignorant, seed=1)


@pytest.mark.parametrize("name", ["sentconv_mr", "sentconv_sst5"])
def test_a_probe_works_with_and_without_a_training_file(tmp_path, name):
    rows = [{"text": f"{label} {i}", "label": label} for label in (0, 1) for i in range(20)]
    for file in (find_set("classification", name).file, find_set("classification", name).train):
        if file:
            write(tmp_path / file, rows)

    def oracle(texts, _instruction):
        return one_hot([text[0] for text in texts])

    assert load_standard_task("classification", name, tmp_path).evaluate(oracle)["accuracy"] == 100
    assert load_standard_task("classification", name, tmp_path).evaluate(ignorant)["accuracy"] < 90


@pytest.mark.parametrize("labels", ["aaaa", "abcd"])
def test_one_class_only_or_a_class_for_each_text_is_refused(tmp_path, labels):
    write(tmp_path / "banking77" / "test.jsonl.gz", [{"text": f"t {i}", "label": label} for i, label in enumerate(labels)])
    with pytest.raises(InputError, match=f"{len(set(labels))} classes in 4 texts; two classes are needed"):
        load_standard_task("clustering", "banking77", tmp_path)


def test_rows_without_a_label_are_left_out_and_a_limit_draws_rows(tmp_path):
    rows = [{"text": f"t {i}", "label": "ab"[i % 2] if i else None} for i in range(31)]
    write(tmp_path / "banking77" / "test.jsonl.gz", rows)
    assert len(load_standard_task("clustering", "banking77", tmp_path).task.dataset["test"][0]["labels"]) == 30
    task = load_standard_task("clustering", "banking77", tmp_path, limit=12)
    assert len(task.task.dataset["test"][0]["labels"]) == 12
    assert task.info.name == "banking77 (12 rows) clustering"


def test_a_folder_offers_what_it_holds_and_reads_only_what_is_chosen(tmp_path):
    write(tmp_path / "stsb" / "test.jsonl.gz", PAIRS)
    (tmp_path / "sick").mkdir()
    (tmp_path / "sick" / "test.jsonl.gz").write_bytes(b"broken")
    assert [task.info.name for task in build_tasks(Data(tmp_path), ["stsb sts"])] == ["stsb STS"]
    with pytest.raises(InputError, match=r"Cannot read .*test\.jsonl\.gz"):
        build_tasks(Data(tmp_path), ["sick"])


def test_rerankings_are_mtebs_own_tasks_with_the_papers_instruction():
    for known_set in read_sets():
        if known_set.kind != "reranking":
            continue
        task = load_mteb_task("reranking", known_set.name)
        assert task.task.metadata.dataset["revision"]
        assert task.get_first_input()[1] in ("What does the user want?", "What is the paper about based on the title?")


def test_a_reranking_ranks_by_cosine():
    texts = {"q": "cat", "good": "cats", "bad": "dogs"}
    data = RetrievalSplitData(
        queries=Dataset.from_list([{"id": "q", "text": texts["q"]}]),
        corpus=Dataset.from_list([{"id": name, "text": texts[name], "title": ""} for name in ("bad", "good")]),
        relevant_docs={"q": {"good": 1, "bad": 0}},
        top_ranked={"q": ["bad", "good"]},
    )
    task = load_mteb_task("reranking", "AskUbuntuDupQuestions")
    task.task.dataset, task.task.data_loaded = {"default": {"test": data}}, True

    def encode_word(word):
        return lambda rows, _instruction: np.array([[1, 0] if row in ("cat", word) else [0, 1] for row in rows], np.float32)

    assert task.evaluate(encode_word("cats"))["map_at_1000"] == pytest.approx(100)
    assert task.evaluate(encode_word("dogs"))["map_at_1000"] == pytest.approx(50)


def test_a_reranking_of_a_local_file_gives_an_oracle_a_hundred(tmp_path):
    rows = [{"query": f"{label} asked", "positive": [f"{label} one"], "negative": ["z two", "z three"]} for label in "ab"]
    write(tmp_path / "askubuntu_dup_questions" / "test.jsonl.gz", rows)
    (task,) = build_tasks(Data(tmp_path), ["reranking"])
    scores = task.evaluate(lambda texts, _: np.array([np.eye(26)["abz".index(text[0])] for text in texts], dtype=np.float32))
    assert scores["map_at_1000"] == pytest.approx(100)
    backwards = task.evaluate(lambda texts, _: np.array([[-1.0 if " one" in t else 1.0] for t in texts], dtype=np.float32))
    assert backwards["map_at_1000"] == pytest.approx(100 / 3, abs=0.01)


def test_a_reranking_row_without_negatives_is_refused(tmp_path):
    write(tmp_path / "scidocs_rr" / "test.jsonl.gz", [{"query": "a", "positive": ["b"], "negative": []}])
    with pytest.raises(InputError, match="row 1: query, positive and negative are required"):
        build_tasks(Data(tmp_path), ["SciDocsRR"])


def test_without_the_hub_a_reranking_says_so(monkeypatch):
    def load_data(*_args, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(mteb.abstasks.AbsTaskRetrieval, "load_data", load_data)
    with pytest.raises(InputError, match=r"Cannot read mteb/AskUbuntuDupQuestions from the hub .*no route"):
        load_mteb_task("reranking", "AskUbuntuDupQuestions").evaluate(ignorant)


def test_the_authors_clusterings_come_from_the_hub_at_pinned_revisions(monkeypatch):
    rows = [{"text": f"{label} {i}", "cluster": label} for label in "ab" for i in range(5)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_options: rows)
    (task,) = build_tasks(Data(hub=True), ["fewevent"])
    assert task.info.revision.startswith("aecc9c3ad7ae8d05b8621390d1919f1816eab777 ")
    assert task.evaluate(lambda texts, _one: one_hot([text[0] for text in texts]))["v_measure"] == pytest.approx(100)


def test_twenty_newsgroups_is_mtebs_task_with_the_papers_instruction():
    (task,) = build_tasks(Data(hub=True), ["TwentyNewsgroups clustering"])
    assert task.task.metadata.dataset == {
        "path": "mteb/twentynewsgroups-clustering",
        "revision": "6125ec4e24fa026cec8a478383ee943acfbd5449",
    }
    clear = {"sentences": [f"{label} {i}" for label in "ab" for i in range(6)], "labels": ["a"] * 6 + ["b"] * 6}
    mixed = {"sentences": [f"{label} {i} again" for label in "ab" for i in range(6)], "labels": ["a", "b"] * 6}
    task.task.dataset, task.task.data_loaded = DatasetDict({"test": Dataset.from_list([clear, mixed])}), True
    prompts = []

    def oracle(texts, instruction):
        prompts.append((len(texts), instruction))
        return one_hot([text[0] for text in texts])

    assert task.evaluate(oracle)["v_measure"] == pytest.approx(50)
    assert prompts == [(24, "Categorize the topic of the news article.")]


def test_results_quote_no_post_to_a_newsgroup(tmp_path):
    rows = [
        {"subject": f"Re: {group}", "text": f"a whole post, {number}", "label": group} for group in "ab" for number in range(3)
    ]
    write(tmp_path / "mini_newsgroups20" / "all.jsonl.gz", rows)
    posts, subjects = (
        load_standard_task("clustering", name, tmp_path) for name in ("mini_newsgroups20 posts", "mini_newsgroups20")
    )
    assert (posts.info.quoted, subjects.info.quoted) == (False, True)
    assert posts.get_first_input()[0].startswith("a whole post")
    assert subjects.get_first_input()[0].startswith("Re: ")
