import json

import pytest
from typer.testing import CliRunner

from inbedder.errors import InputError
from inbedder.io.tables import read_rows
from inbedder_evaluation.prompting.create_sets import app, fill_prompt, make_triplets
from inbedder_evaluation.tasks.intent_emotion import IntentEmotion
from inbedder_evaluation.tasks.task import TaskInfo
from tests.evaluation.prompting.test_chat_endpoint import FakeEndpoint, server  # noqa: F401 - a fixture

FIRST = (
    "Could you modify the emotion (one optimistic and one frustrating) of following utterance without changing the intent "
    '("card_arrival")? "Where is [INTENT] my card?" Please output a JSON object containing keys "optimistic" and '
    '"frustrating", and no other things.'
)
SECOND = (
    'Modify the intent of the above utterances (i.e. from "card_arrival" to another one that you brainstormed. Usually by '
    "modifying the objects or actions) without changing the emotions. Same as before, output a JSON object containing keys "
    '"optimistic" and "frustrating", and no other things.'
)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def ask(monkeypatch, answers):
    """Let the endpoint answer with the next of ``answers`` for each first message."""
    monkeypatch.setattr(FakeEndpoint, "answer", lambda _self, messages: answers(messages))


def test_utterances_become_four_triplets(server, tmp_path, monkeypatch):  # noqa: F811
    def answers(messages):
        if "lost" in messages[0]["content"]:
            return "I would rather not."
        suffix = "same" if len(messages) == 1 else "other"
        return "```json\n" + json.dumps({"optimistic": f"hope {suffix}", "frustrating": f"anger {suffix}"}) + "\n```"

    ask(monkeypatch, answers)
    table = [{"text": "Where is [INTENT] my card?", "label": "card_arrival"}, {"text": "My card is lost", "label": "lost"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    command = ["intent-emotion", tmp_path / "t.jsonl", "--endpoint", server, "--model", "gpt-4", "-o", tmp_path / "o.jsonl"]
    assert "4 rows; 1 rows of the table skipped" in run(*command)
    conversations = [body["messages"] for _, body in FakeEndpoint.requests if "lost" not in body["messages"][0]["content"]]
    assert conversations[0] == [{"role": "user", "content": FIRST}]
    assert [message["role"] for message in conversations[1]] == ["user", "assistant", "user"]
    assert (conversations[1][0]["content"], conversations[1][2]["content"]) == (FIRST, SECOND)
    assert {body["max_tokens"] for _, body in FakeEndpoint.requests} == {512}
    rows = read_rows(str(tmp_path / "o.jsonl"))
    assert [(row["criterion"], row["anchor"], row["positive"], row["negative"]) for row in rows] == [
        ("emotion", "hope same", "hope other", "anger same"),
        ("emotion", "anger same", "anger other", "hope same"),
        ("intent", "hope same", "anger same", "hope other"),
        ("intent", "anger same", "hope same", "anger other"),
    ]
    assert IntentEmotion(rows, TaskInfo("t", "harmonic_mean", "s", "r", "l", "c")).get_first_input() == (
        "hope same",
        "How does the customer feel?",
    )
    FakeEndpoint.requests.clear()
    run(*command)
    assert {"lost" in body["messages"][0]["content"] for _, body in FakeEndpoint.requests} == {True}
    assert len(read_rows(str(tmp_path / "o.jsonl"))) == 4


def test_pairs_become_a_question_that_discriminates_and_one_that_does_not(server, tmp_path, monkeypatch):  # noqa: F811
    ask(monkeypatch, lambda messages: json.dumps({"question": f"Question {len(messages)}?"}))
    (tmp_path / "t.jsonl").write_text(json.dumps({"sentence1": "A cat sits.", "sentence2": "A dog sits."}) + "\n")
    run("instruct-stsb", tmp_path / "t.jsonl", "--endpoint", server, "--model", "gpt-4", "-o", tmp_path / "o.jsonl")
    assert read_rows(str(tmp_path / "o.jsonl")) == [
        {"sentence1": "A cat sits.", "sentence2": "A dog sits.", "instruction": f"Question {number}?", "score": score}
        | {"source": "t.jsonl 0"}
        for number, score in ((1, 0), (3, 1))
    ]
    first, second = (body["messages"][-1]["content"] for _, body in FakeEndpoint.requests)
    assert first == (
        "The following two sentences have similar surface forms:\n\n1. A cat sits.\n2. A dog sits.\n\nIn order to discriminate "
        "the two sentences, what question would you ask? (e.g. what is the subject of the sentence?) Please output a JSON object "
        'that contains the key "question".'
    )
    assert second == (
        "Similar to the above, in order to make the answers to the two sentences immune to discrimination, what question would "
        'you ask? (e.g. what is the subject of the sentence?) Please output a JSON object that contains the key "question".'
    )


def test_an_output_of_another_kind_is_refused(server, tmp_path):  # noqa: F811
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "a", "label": "b"}) + "\n")
    with pytest.raises(InputError, match=r"o\.csv: give a file that ends in \.jsonl"):
        run("intent-emotion", tmp_path / "t.jsonl", "--endpoint", server, "--model", "m", "-o", tmp_path / "o.csv")


def test_brackets_in_a_value_are_not_filled():
    assert fill_prompt('"[TEXT]" ("[INTENT]")', {"TEXT": "[INTENT]", "INTENT": "x"}) == '"[INTENT]" ("x")'


def test_triplets_keep_the_paper_s_order():
    answers = [{"optimistic": "o1", "frustrating": "f1"}, {"optimistic": "o2", "frustrating": "f2"}]
    assert ["".join([row["anchor"], row["positive"], row["negative"]]) for row in make_triplets(answers)] == [
        "o1o2f1",
        "f1f2o1",
        "o1f1o2",
        "f1o1f2",
    ]
