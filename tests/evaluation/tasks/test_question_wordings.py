import gzip
import json
import re
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml

from inbedder import InBedder
from inbedder.prompting.templates import read_prompts
from inbedder_evaluation.embedders import make_embedders
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks.question_wordings import build_row
from inbedder_evaluation.tasks.sets import TableRow, find_set, read_tables
from inbedder_evaluation.tasks.task import read_instructions, read_wordings
from tests.evaluation.tasks.test_tasks import ignorant, one_hot
from tests.evaluation.tasks.test_text_evaluation import write

FINETUNE = Path(__file__).parents[3] / "finetune"
ROWS = [{"text": f"{a} {b} {i}", "airline": a, "negative_reason": b} for a in "xyz" for b in "uvw" for i in range(4)]
TABLES = read_tables()


def read_keys(row):
    """Return the sections and names of a row's questions in evaluation.yaml."""
    if not row.has_question or row.kind == "instruct sts":
        return []
    if row.kind in ("corpus", "conditional sts"):
        return [(row.set, name) for name in read_wordings(row.set)]
    if row.kind == "intent emotion":
        return [("intent_emotion", name) for name in read_wordings("intent_emotion")]
    return [("standard", row.set.split(" ")[0])]


KEYS = sorted({key for rows in TABLES.values() for row in rows for key in read_keys(row)})


def normalize(question):
    return " ".join(re.findall(r"\w+", question.lower()))


def collect_strings(value):
    """Collect all strings of a YAML document, keys included."""
    if isinstance(value, dict):
        return set(chain.from_iterable(map(collect_strings, chain(value, value.values()))))
    if isinstance(value, list):
        return set(chain.from_iterable(map(collect_strings, value)))
    return {value} if isinstance(value, str) else set()


@cache
def read_strings(folder):
    """Collect the normalized strings of all YAML files of a folder of finetune/."""
    paths = (FINETUNE / folder).glob("*.yaml")
    return {normalize(string) for path in paths for string in collect_strings(yaml.safe_load(path.read_text(encoding="utf-8")))}


@cache
def read_written_questions():
    """Collect the normalized questions of the written answers."""
    with gzip.open(FINETUNE / "written" / "open_answers.jsonl.gz", "rt", encoding="utf-8") as file:
        return {normalize(json.loads(line)["instruction"]) for line in file}


@pytest.mark.parametrize("table", TABLES)
def test_the_sets_of_a_table_are_known(table):
    assert all(find_set(row.kind, row.set) for row in TABLES[table])


def test_dev_and_test_share_no_set():
    files = {table: {find_set(row.kind, row.set).file for row in rows} for table, rows in TABLES.items()}
    assert set(files) == {"dev", "test"} and not files["dev"] & files["test"]


@pytest.mark.parametrize("section,name", KEYS)
def test_a_question_has_three_distinct_wordings(section, name):
    assert len({normalize(wording) for wording in read_wordings(section)[name]}) == 3


@pytest.mark.parametrize("section,name", KEYS)
def test_no_recipe_trains_on_a_wording_written_for_a_table(section, name):
    trained = read_strings("recipes") | read_strings("written")
    assert normalize("What is the topic?") in trained
    assert not {normalize(wording) for wording in read_wordings(section)[name][1:]} & trained


@pytest.mark.skipif(not (FINETUNE / "questions").is_dir(), reason="there are no lists of training questions")
@pytest.mark.parametrize("section,name", KEYS)
def test_no_training_question_is_a_question_of_a_table(section, name):
    assert not {normalize(wording) for wording in read_wordings(section)[name]} & read_strings("questions")


@pytest.mark.parametrize("section,name", KEYS)
def test_no_written_question_is_a_question_of_a_table(section, name):
    assert not {normalize(wording) for wording in read_wordings(section)[name]} & read_written_questions()


def test_no_training_question_is_a_wording_whose_agreement_is_measured():
    questions = yaml.safe_load((FINETUNE.parent / "scripts/bench/grouping/wordings.yaml").read_text(encoding="utf-8"))
    wordings = [normalize(wording) for kind in questions.values() for question in kind.values() for wording in question]
    assert len(set(wordings)) == 400
    assert not set(wordings) & (read_strings("questions") | read_strings("recipes") | read_written_questions())


def build_airlines(folder, scores=("clustering", "triplets")):
    write(folder / "airline_tweets" / "all.jsonl.gz", ROWS)
    return build_row(TableRow("corpus", "airline_tweets", scores), folder, None)


def understands_first_wording(texts, instruction):
    wordings = read_instructions("airline_tweets")
    criteria = {question: number for number, question in enumerate((wordings["airline"], wordings["negative_reason"]))}
    return one_hot([text.split()[criteria[instruction]] for text in texts]) if instruction in criteria else ignorant(texts, "")


def test_each_wording_has_its_score(tmp_path):
    clustering, triplets = build_airlines(tmp_path)
    for task, best in ((clustering, 100), (triplets, 100)):
        scores = task.evaluate(understands_first_wording)
        assert scores["airline 1"] == scores["negative_reason 1"] == pytest.approx(best)
        assert max(scores[f"{name} {number}"] for name in ("airline", "negative_reason") for number in (2, 3)) < 90
        assert scores.pop("mean") == pytest.approx(np.mean(list(scores.values())))


def test_an_embedder_that_ignores_questions_is_scored_once(tmp_path):
    (task,) = build_airlines(tmp_path, ["clustering"])
    vectors, calls = ignorant(task.texts, ""), []
    for variant in task.variants:
        variant.evaluate = lambda encode, seed, variant=variant: calls.append(variant) or {"airline": 1, "negative_reason": 2}
    assert task.evaluate(lambda _texts, _instruction: vectors)["mean"] == 1.5
    assert len(calls) == 1


def test_all_questions_of_a_corpus_are_encoded_together(tmp_path, make_model):
    tasks = build_airlines(tmp_path)
    embedder, _ = make_embedders(InBedder(make_model("bert")))
    calls = []

    def encode_many(texts, questions):
        calls.append(list(questions))
        return embedder.encode_many(texts, questions)

    batched = replace(embedder, encode=None, encode_many=encode_many)
    one_by_one = replace(embedder, encode_many=None)
    fast, slow = (
        run([variant], tasks, tmp_path / f"{number}.json", [0], kinds=("raw",))
        for number, variant in enumerate((batched, one_by_one))
    )
    assert [len(questions) for questions in calls] == [6]
    assert [cell.scores for cell in fast] == [cell.scores for cell in slow]
    assert {cell.vectors for cell in fast} == {"raw"}


def test_conditions_become_questions_in_three_patterns(tmp_path):
    rows = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "condition": "colour", "label": 1 + i % 5} for i in range(20)]
    write(tmp_path / "csts" / "train.jsonl.gz", rows)
    (task,) = build_row(TableRow("conditional sts", "csts"), tmp_path, 10)
    patterns = read_prompts("evaluation")["csts"]["condition"]
    assert [variant.instructions[0] for variant in task.variants] == [each.format(condition="the colour") for each in patterns]
    assert task.name == "csts (10 rows)" and len(task.variants[0].rows) == 10


def test_a_set_without_a_question_is_encoded_without(tmp_path):
    rows = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "score": i % 5} for i in range(10)]
    write(tmp_path / "stsb" / "dev.jsonl.gz", rows)
    (task,) = build_row(TableRow("sts", "stsb dev", has_question=False), tmp_path, None)
    assert task.get_first_input()[1] == "" and task.info.name == "stsb dev STS, no question"


@pytest.mark.parametrize("kind,name", [("intent emotion", "IntentEmotion (written)"), ("instruct sts", "InstructSTSB (written)")])
def test_shipped_sets_need_no_folder(tmp_path, kind, name):
    (task,) = build_row(TableRow(kind, name), tmp_path, None)
    wordings = {variant.get_first_input()[1] for variant in task.variants}
    assert len(wordings) == (3 if kind == "intent emotion" else 1)
    assert len({variant.info.revision for variant in task.variants}) == len(task.variants)
