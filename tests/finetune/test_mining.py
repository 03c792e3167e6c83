import gzip
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder.errors import InputError
from inbedder_finetune import mining
from inbedder_finetune.contrastive.contrastive_recipe import PairSource
from inbedder_finetune.contrastive.pairs import read_pairs
from inbedder_finetune.mining import Task, as_instruction, mine_file, mine_pairs, read_tasks


class Embedder:
    """Embedder with a fixed random vector per text."""

    def encode(self, sentences):
        return np.stack([np.random.default_rng(abs(hash_text(text))).normal(size=6) for text in sentences])


def hash_text(text):
    return int.from_bytes(text.encode()[:8].ljust(8, b"."), "little")


def make_generation_task(count=40):
    return Task("g", ("Turn it round.",), tuple(f"{i} in" for i in range(count)), tuple(f"{i} out" for i in range(count)))


def compute_cosines(texts):
    vectors = Embedder().encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


def test_generation_pairs_have_the_highest_scores_of_the_paper():
    task = make_generation_task()
    input_cosines, output_cosines = compute_cosines(task.inputs), compute_cosines(task.outputs)
    positive, negative = input_cosines + output_cosines, input_cosines - output_cosines
    np.fill_diagonal(positive, -9)
    np.fill_diagonal(negative, -9)
    rows = mine_pairs(task, Embedder())
    assert len(rows) == 40
    for i, row in enumerate(rows):
        best = positive[i].argmax()
        negative[i, best] = -9
        assert [row["query"][1], row["pos"][1], row["neg"][0][1]] == [task.inputs[j] for j in (i, best, negative[i].argmax())]


def test_classification_pairs_are_the_nearest_by_label():
    labels = tuple("yes" if i % 3 else "no" for i in range(60))
    task = Task("c", ("Is it so?",), tuple(f"{i} in" for i in range(60)), labels)
    assert task.is_classification and not make_generation_task().is_classification
    input_cosines = compute_cosines(task.inputs)
    np.fill_diagonal(input_cosines, -9)
    for i, row in enumerate(mine_pairs(task, Embedder(), negatives=2)):
        is_same = np.array([label == labels[i] for label in labels])
        best = np.where(is_same, input_cosines[i], -9).argmax()
        worst = np.where(is_same, -9, input_cosines[i]).argsort()[::-1][:2]
        assert row["pos"][1] == task.inputs[best]
        assert [text for _, text in row["neg"]] == [task.inputs[j] for j in worst]


def test_the_best_pairs_are_kept_and_the_seed_samples_wordings():
    task = Task("g", ("One.", "Two."), make_generation_task().inputs, make_generation_task().outputs)
    rows = mine_pairs(task, Embedder(), max_pairs=10)
    assert rows == mine_pairs(task, Embedder(), max_pairs=10) != mine_pairs(task, Embedder(), max_pairs=10, seed=1)
    assert {row["query"][0] for row in mine_pairs(task, Embedder())} == {as_instruction("One."), as_instruction("Two.")}
    assert as_instruction("One\n two.") == "Represent the example for the following task: One two; Input: "
    assert all(row["query"][0] == row["pos"][0] == row["neg"][0][0] for row in rows) and len(rows) == 10


def test_a_task_with_too_few_examples_or_one_output_gives_no_pair():
    assert mine_pairs(Task("t", ("a",), ("x", "y"), ("1", "2")), Embedder()) == []
    assert mine_pairs(Task("t", ("a",), tuple("abcdef"), ("same",) * 6), Embedder()) == []


def write_jsonl(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def test_tasks_are_read_from_every_form(tmp_path):
    rows = [{"input": f"{i} in", "output": [f"{i} out."]} for i in range(5)]
    content = {"Definition": ["Do it."], "Instances": [*rows, {"input": "", "output": "x"}, {"cause": "a"}, rows[0]]}
    for folder in ("sni", "one", "induction"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sni" / "task1.json").write_text(json.dumps(content))
    (tmp_path / "sni" / "other.json").write_text("[1]")
    (tmp_path / "one" / "task.json").write_text(json.dumps({"Definition": "Do it."}))
    write_jsonl(tmp_path / "one" / "instances.jsonl.gz", rows)
    (tmp_path / "induction" / "instructions.json").write_text(json.dumps({"a": {"instructions": ["Do it.", "Do."]}}))
    write_jsonl(tmp_path / "induction" / "induce.jsonl", [{"task": "a", **row} for row in rows])
    for path, name in (("sni", "task1"), ("sni/task1.json", "task1"), ("one", "one"), ("induction", "a")):
        (task,) = read_tasks(tmp_path / path)
        assert (task.name, task.instructions[0], task.outputs[4]) == (name, "Do it.", "4 out.")
        assert len(task.inputs) == 5
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="No task in"):
            read_tasks(path)


def test_a_file_is_written_atomically_and_read_as_medi(tmp_path):
    rows = [{"input": f"{i} in", "output": f"{i} out"} for i in range(9)]
    (tmp_path / "task1.json").write_text(json.dumps({"Definition": ["Do it."], "Instances": rows}))
    counts = mine_file([tmp_path / "task1.json"], tmp_path / "pairs.jsonl", Embedder(), negatives=2)
    assert counts == {"task1": (9, 9)}
    pairs = read_pairs(PairSource("pairs.jsonl", negatives=2), tmp_path)
    assert len(pairs) == 9 and pairs[0].task == "pairs.jsonl task1" and len(pairs[0].negatives) == 2

    class Broken:
        def encode(self, sentences):
            raise KeyboardInterrupt

    before = (tmp_path / "pairs.jsonl").read_text()
    with pytest.raises(KeyboardInterrupt):
        mine_file([tmp_path / "task1.json"], tmp_path / "pairs.jsonl", Broken())
    assert (tmp_path / "pairs.jsonl").read_text() == before
    with pytest.raises(InputError, match=r"must be a \.jsonl file"):
        mine_file([tmp_path / "task1.json"], tmp_path / "pairs.csv", Embedder())


def test_pairs_do_not_replace_the_rows_that_they_are_mined_from(tmp_path):
    (tmp_path / "instructions.json").write_text(json.dumps({"a": {"instructions": ["Do it."]}}))
    rows = "".join(json.dumps({"task": "a", "input": f"{i} in", "output": f"{i} out"}) + "\n" for i in range(9))
    (tmp_path / "rows.jsonl").write_text(rows)
    with pytest.raises(InputError, match=r"rows\.jsonl' is the input itself"):
        mine_file([tmp_path], tmp_path / "rows.jsonl", Embedder())
    assert (tmp_path / "rows.jsonl").read_text() == rows


def test_the_command_reports_the_pairs_of_each_task(tmp_path, monkeypatch):
    monkeypatch.setattr(mining, "_NamedEncoder", lambda name: Embedder())
    rows = [{"input": f"{i} in", "output": f"{i} out"} for i in range(9)]
    (tmp_path / "task1.json").write_text(json.dumps({"Definition": ["Do it."], "Instances": rows}))
    result = CliRunner().invoke(mining.app, [str(tmp_path / "task1.json"), "-o", str(tmp_path / "p.jsonl"), "--most", "4"])
    assert result.exit_code == 0 and "task1: 4 pairs of 9 examples" in result.output
