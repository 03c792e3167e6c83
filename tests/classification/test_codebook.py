from dataclasses import replace

import numpy as np
import pytest

from inbedder import Codebook, InBedder, cluster
from inbedder.classification.codebook import Code, find_common_answers, find_representative_rows
from inbedder.errors import InputError

TEXTS = [f"{word} {number}" for word in ("I love cats", "The box was crushed", "My card is blocked") for number in range(8)]
CODES = "codes:\n- name: pets\n  definition: cats\n- name: parcels\n  examples:\n  - The box was crushed.\n"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"), dtype="float32")


@pytest.fixture(scope="module")
def codebook(model):
    return Codebook.of(cluster(TEXTS, "What?", model, k=3), model)


def load(tmp_path, content):
    path = tmp_path / "codes.yaml"
    path.write_text(content, encoding="utf-8")
    return Codebook.load(path)


def test_shares_are_those_that_the_codebook_finds(model, codebook):
    counts = codebook.classify(TEXTS, model).count_texts()
    assert [code.share for code in codebook.codes] == [round(counts[code.name] / 24, 4) for code in codebook.codes]
    assert sum(code.share for code in codebook.codes) < 1
    assert codebook.text_count == 24 and all(0 < len(code.examples) <= 3 for code in codebook.codes)


def test_a_saved_codebook_is_loaded_as_it_was(tmp_path, codebook):
    odd = Code("no", "2024: #1", ("\U0001f600 'a' \"b\"", "two\n- name: lines", "\ud800", "yes"), 0.5, 0.25, "matched")
    saved = replace(codebook, codes=[*codebook.codes, odd])
    saved.save(tmp_path / "codes.yaml")
    assert Codebook.load(tmp_path / "codes.yaml") == saved


def test_an_edited_codebook_needs_only_a_question_and_names(tmp_path):
    edited = load(tmp_path, "question: What?\n" + CODES)
    assert edited.codes == [Code("pets", "cats"), Code("parcels", examples=("The box was crushed.",))]
    assert (edited.model, edited.min_score, edited.text_count) == ("mini", None, None)
    assert [row["example"] for row in edited.rows()] == ["", "The box was crushed."]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CODES, "no question"),
        ("question: What?\ncodes: 3\n", "no list of codes"),
        ("question: What?\n" + CODES + "- definition: x\n", "code 3 has no name"),
        ("question: What?\n" + CODES + "- name: pets\n", "'pets' occurs twice"),
        ("question: What?\n" + CODES + "- name: a\n  example: x\n", "the code 'a' has unknown fields 'example'"),
        ("question: What?\n" + CODES + "- name: a\n  examples:\n  - Note: late\n", "example 1 of the code 'a' is not one text"),
        ("question: What?\n" + CODES + "- name: a\n  share: 5%\n", "share of the code 'a' is '5%'"),
        ("question: What?\n" + CODES + "- name: a\n  share: 1\n  share: 2\n", "'share' occurs twice in the code 'a'"),
        ("question: What?\n" + CODES + "- name: none of these\n", "Choose another name"),
        ("question: What?\ncodes:\n- name: a\n", "Give at least two"),
        ("question: What?\ncodes:\n- name: 'a\n", "not valid YAML in line"),
        ("question: What?\nmin_score: nan\n" + CODES, "min_score of the codebook is 'nan'"),
    ],
)
def test_a_faulty_edit_names_the_code(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        load(tmp_path, content)


def test_a_missing_or_binary_file_is_an_input_error(tmp_path):
    (tmp_path / "codes.yaml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "codes.yaml", tmp_path / "nowhere.yaml", tmp_path):
        with pytest.raises(InputError, match="The codebook"):
            Codebook.load(path)


def test_a_single_group_is_no_codebook(model):
    with pytest.raises(InputError, match="single group"):
        Codebook.of(cluster(TEXTS, "What?", model, k=1), model)


def test_an_update_keeps_codes_and_says_which_vanished(model, codebook):
    pets = next(code for code in codebook.codes if "cats" in code.examples[0])
    updated = codebook.update([text for text in TEXTS if "cats" in text], model)
    unchanged_codes = [replace(code, share=None, previous_share=None, state="") for code in updated.codes]
    assert unchanged_codes == [replace(code, share=None) for code in codebook.codes]
    assert [code.previous_share for code in updated.codes] == [code.share for code in codebook.codes]
    assert {code.name: code.state for code in updated.codes} == {
        code.name: "matched" if code.name == pets.name else "vanished" for code in codebook.codes
    }


def test_texts_that_fit_no_code_become_a_new_one(model):
    names = ("I love cats", "The box was crushed")
    coded_texts = [f"{name}{end}" for name in names for end in ("", ".", "!", " now")]
    strange = ["My card is blocked"] * 15
    first = Codebook("What?", [Code(name, examples=(name,)) for name in names], model.spec.model)
    scores = first.classify([*coded_texts, *strange], model).scores.max(axis=1)
    assert scores[:8].min() > scores[8:].max()
    updated = replace(first, min_score=float(scores[8:].max()) + 1e-4).update([*coded_texts, *strange], model)
    assert [code.state for code in updated.codes] == ["matched", "matched", "new"]
    assert updated.codes[2].share >= round(15 / 23, 4)
    assert sum(code.share for code in updated.codes) == pytest.approx(1, abs=1e-3)
    assert updated.codes[2].examples == ("My card is blocked",)


def test_an_update_needs_the_model_and_the_minimum(model, codebook):
    with pytest.raises(InputError, match="has no min_score"):
        replace(codebook, min_score=None).update(TEXTS, model)
    with pytest.raises(InputError, match="min_score of the codebook is of 'mini'"):
        replace(codebook, model="mini").update(TEXTS, model)


def test_each_common_answer_adds_a_word():
    answers = ["lost card"] * 3 + ["card lost", "card lost", "", "none", "broken card", "broken card", "rare"]
    assert find_common_answers(answers) == ["lost card", "broken card"]
    assert find_common_answers(["rare", "dear"]) == ["rare", "dear"]
    assert find_common_answers(["", "none"]) == []


def test_representative_rows_have_the_mean_of_all():
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], dtype=np.float32)
    assert find_representative_rows(vectors, ["a", "b", "a ", "c"], 2) == [3, 0]
    assert find_representative_rows(vectors, ["", " ", "a", "a"], 3) == [2]
