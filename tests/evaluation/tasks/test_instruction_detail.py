import pytest

from inbedder_evaluation.tasks.corpus import make_corpus
from inbedder_evaluation.tasks.instruction_detail import InstructionDetail, make_gibberish, read_detail_instructions
from inbedder_evaluation.tasks.sets import read_sets
from tests.evaluation.tasks.test_tasks import QUESTIONS, ROWS, ignorant, one_hot

WORDS = {"tag": "Toy", "simple": {"kind": "kind", "mood": "mood"}}


def test_gibberish_replaces_words_by_runs_of_letters():
    instructions = ["Represent the image caption: ", "Represent a comment: ", "Represent the statement: "]
    assert make_gibberish(instructions) == ["AAAAAAAAA BBB CCCCC DDDDDDD: ", "AAAAAAAAA E FFFFFFF: ", "AAAAAAAAA BBB GGGGGGGGG: "]


def test_gibberish_keeps_instructions_apart_behind_the_alphabet():
    words = [f"w{i}" for i in range(60)]
    assert len(set(make_gibberish(words))) == 60


def test_levels_are_scored_by_what_the_embedder_makes_of_them():
    task = InstructionDetail(make_corpus("toy", ROWS, QUESTIONS), WORDS)
    assert task.levels["gibberish"] == ["AAAA?", "BBBB?"]

    def reader(texts, instruction):
        if instruction.lower().rstrip("?") in ("kind", "mood"):
            return one_hot([text.split()[0 if instruction.lower().startswith("kind") else 1] for text in texts])
        return ignorant(texts, instruction)

    scores = task.evaluate(reader, seed=0)
    assert (scores["detailed"], scores["simple"]) == pytest.approx((100, 100))
    assert scores["gibberish"] == scores["none"] == scores["tag"] < 60
    assert scores["delta_gibberish"] == pytest.approx(100 - scores["gibberish"])
    assert task.evaluate(ignorant, seed=0)["delta_gibberish"] == 0


def test_every_detail_is_of_a_known_corpus():
    assert set(read_detail_instructions()) <= {known_set.name.lower() for known_set in read_sets() if known_set.kind == "corpus"}
    for words in read_detail_instructions().values():
        assert words["tag"] and len(words["simple"]) == 2
