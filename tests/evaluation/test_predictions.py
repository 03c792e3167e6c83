import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.cli import app
from inbedder.conditional.config import Encoding
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.errors import InputError
from inbedder_evaluation.embedders import make_bi_encoder_embedders
from inbedder_evaluation.results import load_cells

ROWS = [
    ("I love cats", "I love dogs", "The animal."),
    ("I love cats", "I love dogs", "The feeling."),
    ("Is it late?", "The box was late", "The delivery"),
]


@pytest.fixture
def hidden(tmp_path):
    path = tmp_path / "csts_test.csv"
    path.write_text("sentence1,sentence2,condition,label\n" + "".join(",".join(row) + ",-1\n" for row in ROWS))
    return path


def evaluate(*options, code=0):
    result = CliRunner().invoke(app, ["evaluate", "--task", "csts", *map(str, options)])
    assert result.exit_code == code, result.output
    return result


def predict(data, output, *options):
    """Return what the authors' make_test_submission.py sends of a file."""
    evaluate("--data", data, "--predict", output, *options)
    predictions = json.loads(output.read_text())
    assert list(predictions) == [str(row) for row in range(len(ROWS))]
    return [float(score) for _, score in sorted(predictions.items(), key=lambda item: int(item[0]))]


@pytest.mark.parametrize("kind", ["bi", "cross", "tri"])
def test_a_trained_encoder_predicts_rows_whose_labels_are_hidden(make_model, hidden, tmp_path, kind):
    encoder = ConditionalEncoder.of_base(make_model("bert"), Encoding(kind=kind, pooler="cls")).eval()
    encoder.save(tmp_path / kind)
    expected = encoder.similarity([row[0] for row in ROWS], [row[1] for row in ROWS], condition=[row[2] for row in ROWS])
    np.testing.assert_allclose(predict(hidden, tmp_path / "p.json", "--model", tmp_path / kind), expected, atol=1e-6)


def test_a_model_predicts_its_cosines_of_conditions_or_questions(make_model, hidden, tmp_path):
    model = InBedder(make_model("bert"))
    for options, conditions in (([], [row[2] for row in ROWS]), (["--task", "question"], ["What is the animal?"])):
        first, second = (
            model.encode([row[side] for row in ROWS][: len(conditions)], conditions, normalize_embeddings=True) for side in (0, 1)
        )
        result = CliRunner().invoke(
            app,
            ["evaluate", "--data", str(hidden), "--predict", str(tmp_path / "p.json"), "--model", model.name, *options],
            catch_exceptions=False,
        )
        assert "3 predictions" in result.output
        scores = list(json.loads((tmp_path / "p.json").read_text()).values())[: len(conditions)]
        np.testing.assert_allclose(scores, (first * second).sum(1), atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_untrained_bi_encoder_is_that_of_the_authors_code(make_model, hidden, tmp_path, family):
    base = make_model(family)
    model, tokenizer = AutoModel.from_pretrained(base, add_pooling_layer=False).eval(), AutoTokenizer.from_pretrained(base)

    def read_cls(*texts):
        inputs = tokenizer(*texts, return_tensors="pt", padding=True)
        with torch.no_grad():
            return model(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state[:, 0]

    first, second, conditions = (list(column) for column in zip(*ROWS, strict=True))
    pairs = torch.cosine_similarity(read_cls(first, conditions), read_cls(second, conditions))
    sentences = torch.cosine_similarity(read_cls(first), read_cls(second))
    for embedder, expected in zip(make_bi_encoder_embedders(base), (pairs, sentences), strict=True):
        np.testing.assert_allclose(embedder.similarity(first, second, conditions), expected, atol=1e-5)
    predictions = predict(hidden, tmp_path / "p.json", "--bi-encoder", base)
    np.testing.assert_allclose(predictions, pairs, atol=1e-5)


def test_untrained_bi_encoders_are_measured_without_another_model(make_model, hidden, tmp_path):
    rated = tmp_path / "csts_validation.csv"
    text = hidden.read_text()
    for rating in "521":
        text = text.replace(",-1", f",{rating}", 1)
    rated.write_text(text)
    base = make_model("roberta")
    evaluate("--data", rated, "--bi-encoder", base, "-o", tmp_path / "r.json")
    names = {cell.model for cell in load_cells(tmp_path / "r.json")}
    assert names == {f"{base}, bi-encoder", f"{base}, bi-encoder, sentences only"}
    revisions = {cell.model_revision for cell in load_cells(tmp_path / "r.json")}
    assert len(revisions) == 2


def test_what_cannot_be_submitted_is_refused(make_model, hidden, tmp_path):
    output = tmp_path / "p.json"
    two = evaluate("--data", hidden, "--predict", output, "--bi-encoder", "a", "--model", make_model("bert"), code=2)
    assert "give one --model or --bi-encoder" in " ".join(two.output.split())
    limited = evaluate("--data", hidden, "--predict", output, "--limit", "10", code=1)
    assert isinstance(limited.exception, InputError) and "a prediction for each row" in str(limited.exception)
    unpredicted = evaluate("--data", hidden, "-o", tmp_path / "r.json", code=1)
    assert "hides its labels" in str(unpredicted.exception) and "--predict predictions.json" in str(unpredicted.exception)
    assert not output.exists()
