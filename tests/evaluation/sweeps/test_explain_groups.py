import json

import numpy as np
import typer
from typer.testing import CliRunner

from inbedder_evaluation.sweeps import explain_groups
from inbedder_evaluation.tasks.robustness import LabelledTexts


class Model:
    """Vectors of two directions; in the first, length separates a from b."""

    def encode(self, texts, _instruction):
        vectors = {"a": (1.0, 0.0), "b": (9.0, 0.0), "c": (0.0, 1.0)}
        return np.array([vectors[text[0]] for text in texts], dtype=np.float32)

    def answer(self, texts, _instruction, **sampling):
        self.sampling = sampling
        return [f"word{text[0]}" for text in texts]

    def nearest_words(self, vectors, _top):
        return [["word"]] * len(vectors)


def make_data(labels):
    texts = [f"{letter} {number}" for letter in "abc" for number in range(4)]
    return LabelledTexts("toy", texts, labels, "toy", "none")


def test_groups_are_those_of_vectors_of_any_length():
    result = explain_groups.explain_groups(Model(), make_data([*"aaaabbbbcccc"]), "Which?", seed=42)
    assert result["v_measure"] == 1.0
    assert sorted(str(group["labels"]) for group in result["groups"]) == ["{'a': 4}", "{'b': 4}", "{'c': 4}"]


def test_groups_have_labels_entropy_and_words_the_purest_first():
    model = Model()
    result = explain_groups.explain_groups(model, make_data([*"aabbbbbbbccc"]), "Which?", temperature=0.6, top_p=0.9, seed=42)
    assert model.sampling == {"temperature": 0.6, "top_p": 0.9, "seed": 42}
    assert [(group["size"], group["entropy"]) for group in result["groups"]] == [(4, 0.0), (4, 0.8113), (4, 1.0)]
    pure, mixed, half = result["groups"]
    assert (pure["labels"], pure["keywords"], pure["decoded"]) == ({"b": 4}, ["wordb"], ["word"])
    assert (mixed["labels"], half["labels"]) == ({"c": 3, "b": 1}, {"a": 2, "b": 2})
    assert explain_groups.make_table(result)[2] == ["2", "0.81", "c 3, b 1", "wordc"]


def test_the_command_reads_the_hub_and_the_authors_instructions(make_model, tmp_path, monkeypatch):
    rows = [{"text": f"{label} {i}", "cluster": label} for label in ("cats", "dogs") for i in range(5)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_options: rows)
    (tmp_path / "i.json").write_text(json.dumps({"FewRel": {"instruction": "Which animal?"}}))
    app = typer.Typer()
    app.command()(explain_groups.main)
    arguments = ["--instructions", tmp_path / "i.json", "--set", "FewRel", "--max-length", 64, "-o", tmp_path / "t.json"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--model", make_model("llama")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "t.json").read_text())
    (entry,) = content["sets"]
    assert (entry["set"], entry["instruction"], len(entry["groups"])) == ("FewRel", "Which animal?", 2)
    assert content["spec"]["encoding"]["truncation_side"] == "prompt-left"
    assert f"FewRel: V-measure {entry['v_measure']:.2f}" in result.output
