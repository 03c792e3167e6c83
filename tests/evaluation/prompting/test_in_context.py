from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.errors import InputError, ModelError
from inbedder_evaluation.prompting import in_context, label_losses
from inbedder_evaluation.prompting.in_context import (
    SETS,
    app,
    load_language_model,
    load_questions,
    measure,
    rank_examples,
    select_examples,
)
from inbedder_evaluation.prompting.label_losses import compute_label_losses, count_tokens, rouge_l
from inbedder_evaluation.results import load_cells
from inbedder_evaluation.tasks.sets import read_sets
from tests.conftest import GOLDEN
from tests.evaluation.tasks.test_text_evaluation import write
from tests.evaluation.test_runner import embedder

TRAIN = [{"text": text, "label": label} for text, label in (("a dull film", 1), ("a fine film", 3), ("a superb film", 4))]
TEST = [{"text": "so dull", "label": 1}, {"text": "so fine", "label": 3}, {"text": "so superb", "label": 0}]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "sentconv_sst5" / "train.jsonl.gz", TRAIN)
    write(tmp_path / "sentconv_sst5" / "test.jsonl.gz", TEST)
    return tmp_path


def encode(texts, _instruction):
    return np.array([["dull" in text, "fine" in text, "superb" in text] for text in texts], dtype=np.float32)


WORDS = SimpleNamespace(
    tokenizer=SimpleNamespace(tokenizer=lambda texts, **_options: {"input_ids": [text.split() for text in texts]})
)
"""A model whose tokens are words."""


def test_the_label_of_the_smallest_loss_is_the_answer(folder, monkeypatch):
    """The losses prefer the label of the last example."""
    prompts = []

    def compute(_model, examples, question, labels, _batch_size):
        prompts.append((examples, question, labels))
        return [1.0 if label == examples[-1][1] else 2.0 for label in labels]

    monkeypatch.setattr(in_context, "compute_label_losses", compute)
    scores = measure(load_questions("sst5", folder), embedder(encode, "toy"), WORDS)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert scores["examples_per_prompt"] == 3
    question = "How do you feel about the following sentence?\nso dull\nanswer:"
    examples, _, labels = next(prompt for prompt in prompts if prompt[1] == question)
    assert examples[-1] == ("How do you feel about the following sentence?\na dull film\nanswer:", "negative")
    assert labels == ["very negative", "negative", "neutral", "positive", "very positive"]


@pytest.mark.parametrize(
    ("name", "files", "row", "expected"),
    [
        (
            "rte",
            ("glue_rte/train", "glue_rte/validation"),
            {"sentence1": "It rains", "sentence2": "It is wet", "label": 1},
            ("It rains.\nquestion: It is wet", "It rains.\nquestion: It is wet. True or False?\nanswer:", "False", 2),
        ),
        (
            "mrpc",
            ("glue_mrpc/train", "glue_mrpc/validation"),
            {"sentence1": "A", "sentence2": "B", "label": 0},
            ("A.\nB", "Are the following two sentences 'equivalent' or 'not equivalent'?\nA.\nB.\nanswer:", "not equivalent", 2),
        ),
        (
            "dbpedia",
            ("dbpedia_14/train", "dbpedia_14/test"),
            {"title": "Abbott", "content": " A coachbuilder.", "label": 0},
            (
                "title: Abbott ; content:  A coachbuilder.",
                "title: Abbott; content:  A coachbuilder.",
                "company",
                14,
            ),
        ),
        (
            "hellaswag",
            ("hellaswag/train", "hellaswag/validation"),
            {"activity_label": "Roof", "ctx_a": "A man sits.", "ctx_b": "he", "endings": ["a.", "b.", "c.", "d."], "label": "3"},
            ("The topic is Roof. A man sits. he | a. | b. | c. | d.", "The topic is Roof. A man sits. he ", "d.", 4),
        ),
    ],
)
def test_each_set_is_asked_as_the_authors_code_asks_it(tmp_path, name, files, row, expected):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write(tmp_path / f"{file}.jsonl.gz", [row])
    questions = load_questions(name, tmp_path)
    text, question, label, choices = expected
    assert (questions.texts, questions.pool, questions.questions) == ([text], [text], [question])
    assert (questions.labels, questions.examples, len(questions.choices[0])) == ([label], [(question, label)], choices)
    assert questions.info.main_score == ("rouge_l" if name == "hellaswag" else "accuracy")


def test_questions_and_examples_of_one_file_share_no_row(tmp_path):
    rows = [{"sentence": str(number), "question": "Why?", "label": number % 2} for number in range(300)]
    write(tmp_path / "multirc_answerability" / "all.jsonl.gz", rows)
    questions = load_questions("multirc", tmp_path)
    assert (len(questions.texts), len(questions.pool)) == (256, 44)
    assert {*questions.texts, *questions.pool} == {f"{number}\nWhy?" for number in range(300)}
    number = questions.texts[0].split()[0]
    assert questions.questions[0] == f"{number}\n. Based on that information, can we know Why?\nanswer:"
    assert questions.labels[0] == ("True", "False")[int(number) % 2]


def test_a_context_skips_long_examples_and_stops_when_full():
    assert select_examples([2, 0, 1], [251, 10, 10], 5) == [1, 2]
    assert select_examples([0, 1], [200, 200], 700) == [0]
    assert select_examples([0], [200], 900) == []
    assert select_examples([0], [251], 5, longest_example=1000) == [0]


def score_by_hand(weights, tokenizer, parts, label):
    """Restate MetaICL: every part tokenized on its own, the mean cross-entropy of the label's tokens, one row per pass."""
    prompt = [token for part in parts for token in tokenizer(part, add_special_tokens=False)["input_ids"]]
    label_ids = tokenizer("\n" + label, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits = weights(torch.tensor([prompt + label_ids])).logits[0]
    losses = torch.nn.functional.cross_entropy(logits[len(prompt) - 1 : -1], torch.tensor(label_ids), reduction="none")
    return float(losses.sum() / len(label_ids))


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_losses_are_those_of_metaicl(kind, batch_size):
    weights = AutoModelForCausalLM.from_pretrained(GOLDEN / kind, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / kind)
    model, labels = InBedder(GOLDEN / kind, dtype="float32"), ["equivalent", "not equivalent", "no"]
    examples = [("A man sits.\nanswer:", "equivalent"), ("It rains.\nanswer:", "not equivalent")]
    losses = compute_label_losses(model, examples, "It snows.\nanswer:", labels, batch_size)
    parts = ["A man sits.\nanswer:", "\nequivalent", "\n\n\nIt rains.\nanswer:", "\nnot equivalent", "\n\n\nIt snows.\nanswer:"]
    assert losses == pytest.approx([score_by_hand(weights, tokenizer, parts, label) for label in labels], abs=1e-5)
    assert len(set(losses)) == 3
    first_losses = compute_label_losses(model, [], "It snows.\nanswer:", labels, batch_size)
    assert first_losses == pytest.approx([score_by_hand(weights, tokenizer, parts[-1:], label) for label in labels], abs=1e-5)


def test_a_long_prompt_is_cut_at_its_start_and_a_long_question_at_its_end(monkeypatch):
    model, question, label = InBedder(GOLDEN / "opt", dtype="float32"), "word" + " word" * 9, "yes"
    short = compute_label_losses(model, [], question, [label])
    (question_length, label_length) = count_tokens(model, ["\n\n\n" + question, f"\n{label}"])
    monkeypatch.setattr(label_losses, "MAX_QUESTION_TOKENS", question_length + label_length)
    assert compute_label_losses(model, [], question + " unread" * 30, [label]) == pytest.approx(short, abs=1e-5)
    with_example = compute_label_losses(model, [("unread", "yes")], question, [label])
    assert abs(with_example[0] - short[0]) > 1e-3
    monkeypatch.setattr(label_losses, "MAX_PASS_TOKENS", question_length + label_length)
    assert compute_label_losses(model, [("unread", "yes")], question, [label]) == pytest.approx(short, abs=1e-5)


@pytest.mark.parametrize(
    ("prediction", "reference", "score"),
    [
        ("the cat sits", "the cat sits", 1),
        ("The cats sit.", "the cat sat on a mat", 4 / 9),
        ("a b c d", "d c b a", 0.25),
        ("running", "runs", 1),
        ("", "words", 0),
        ("dog", "cat", 0),
    ],
)
def test_rouge_l_is_the_f1_of_the_longest_common_subsequence(prediction, reference, score):
    assert rouge_l(prediction, reference) == pytest.approx(score)


def test_examples_are_ranked_after_centring_each_side():
    pool = np.array([[10, 1], [10, -1], [10, 0]], dtype=np.float32)
    queries = np.array([[5, -2], [5, 2]], dtype=np.float32)
    assert [ranks[0] for ranks in rank_examples(pool, queries)] == [1, 0]


def test_the_command_measures_once_and_keeps_the_cell(folder, make_model, tmp_path, monkeypatch):
    command = ["--model", make_model("bert"), "--language-model", make_model("opt"), "--task", "sst5"]
    command += ["--data", str(folder), "-o", str(tmp_path / "r.json")]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    cells = load_cells(tmp_path / "r.json")
    assert len(cells) == 2 and all(0 <= cell.scores["accuracy"] <= 100 for cell in cells)
    monkeypatch.setattr(in_context, "measure", None)
    assert "sst5 in context" in CliRunner().invoke(app, command, catch_exceptions=False).stdout


def test_wrong_input_is_refused(folder, make_model):
    with pytest.raises(InputError, match=r"There is no .*glue_mrpc.train.jsonl.gz. scripts/data/get_data.py says"):
        load_questions("mrpc", folder)
    with pytest.raises(ModelError, match="is a masked model; answering with examples needs a causal LM"):
        load_language_model(make_model("bert"))
    with pytest.raises(InputError, match=r"Unknown in-context questions 'boolq'\. Known: sst5, mrpc, rte"):
        arguments = ["-o", "r.json", "--data", str(folder), "--language-model", "x", "--task", "boolq"]
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_the_default_sets_are_all_of_the_registry():
    assert list(SETS) == [known_set.name for known_set in read_sets() if known_set.kind == in_context.KIND]
