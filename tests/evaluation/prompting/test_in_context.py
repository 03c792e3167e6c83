from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder.errors import InputError, ModelError
from inbedder_evaluation.prompting import in_context
from inbedder_evaluation.prompting.in_context import (
    SEPARATOR,
    app,
    build_context,
    load_language_model,
    load_questions,
    measure,
    rank_examples,
)
from inbedder_evaluation.results import load_cells
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


class CopyingModel(SimpleNamespace):
    """Answers with the label of the last example."""

    tokenizer = SimpleNamespace(tokenizer=lambda texts: {"input_ids": [text.split() for text in texts]})

    def answer(self, questions, contexts, **_options):
        self.prompts = [context + question for context, question in zip(contexts, questions, strict=True)]
        return [context.split(SEPARATOR)[-2].rsplit("\n", 1)[-1] + "\n\n\nHow do" for context in contexts]


def test_the_nearest_example_stands_last_and_its_label_is_the_answer(folder):
    model = CopyingModel()
    scores = measure(load_questions("sst5", folder), embedder(encode, "toy"), model)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert (scores["percent_without_label"], scores["examples_per_prompt"]) == (0, 3)
    question = "How do you feel about the following sentence?\nso dull\nanswer:\n"
    assert next(prompt for prompt in model.prompts if prompt.endswith(question)).endswith(
        f"How do you feel about the following sentence?\na dull film\nanswer:\nnegative{SEPARATOR}{question}"
    )


def test_a_context_skips_long_examples_and_stops_when_full():
    assert build_context(["near", "long", "far"], [10, 251, 10], 5) == f"far{SEPARATOR}near{SEPARATOR}"
    assert build_context(["near", "far"], [200, 200], 700) == f"near{SEPARATOR}"
    assert build_context(["near"], [200], 900) == ""


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
    with pytest.raises(InputError, match=r"There is no .*mrpc.train.jsonl.gz. scripts/data/get_data.py says"):
        load_questions("mrpc", folder)
    with pytest.raises(ModelError, match="is a masked model; answering with examples needs a causal LM"):
        load_language_model(make_model("bert"))
    with pytest.raises(InputError, match=r"Unknown in-context questions 'boolq'\. Known: sst5, mrpc"):
        arguments = ["-o", "r.json", "--data", str(folder), "--language-model", "x", "--task", "boolq"]
        CliRunner().invoke(app, arguments, catch_exceptions=False)
