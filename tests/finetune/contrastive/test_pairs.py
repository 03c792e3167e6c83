import json

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.contrastive_recipe import PairData, PairSource
from inbedder_finetune.contrastive.pairs import InstructedText, load_pairs, read_pairs

GOOD = {"query": ["Q: ", "a"], "pos": ["P: ", "b"], "neg": ["P: ", "c"], "task_id": 3}


def write(folder, rows, name="m.jsonl"):
    text = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name).write_text(text)
    return name


def test_the_authors_json_and_our_jsonl_hold_the_same_rows(tmp_path):
    ours = [{**GOOD, "neg": [["P: ", "c"]]}, {**GOOD, "task_id": "three"}]
    first = read_pairs(PairSource(write(tmp_path, [GOOD], "m.json")), tmp_path)
    second = read_pairs(PairSource(write(tmp_path, ours)), tmp_path)
    assert first[0].query == InstructedText("Q: ", "a")
    assert first[0].negatives == second[0].negatives == (InstructedText("P: ", "c"),)
    assert [row.task for row in (*first, *second)] == ["m.json 3", "m.jsonl 3", "m.jsonl three"]


def test_texts_without_instruction_are_plain_strings(tmp_path):
    rows = [{"query": "a", "pos": "b", "neg": ["c", "d"], "task_id": 0}, {**GOOD, "neg": [["P: ", "c"], "d"]}]
    one, two = read_pairs(PairSource(write(tmp_path, rows), negatives=2), tmp_path)
    assert one.query == InstructedText("", "a")
    assert set(one.negatives) == {InstructedText("", "c"), InstructedText("", "d")}
    assert set(two.negatives) == {InstructedText("P: ", "c"), InstructedText("", "d")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neg": None}, r"row 2: has no negative \(neg\); add one .* or set the source's negatives to 0"),
        ({"neg": []}, r"row 2: has no negative"),
        ({"query": ["", "a"]}, "row 2: the instruction of query is empty; write a plain text"),
        ({"pos": ["P: ", " "]}, "row 2: the text of pos is empty"),
        ({"neg": ["P: ", ""]}, "row 2: the text of neg is empty"),
        ({"pos": None}, "row 2: has no pos; each row has query, pos and neg"),
        ({"query": ["Q: ", "a", "b"]}, r"row 2: query must be \[instruction, text\] or a text, not"),
        ({"query": {"text": "a"}}, r"row 2: query must be \[instruction, text\]"),
        ({"neg": [3]}, r"row 2: neg must be \[instruction, text\]"),
        ({"neg": 3}, r"row 2: neg must be \[instruction, text\]"),
        ({"task_id": None}, "row 2: task_id must be a number or a name, not None"),
        ({"task_id": True}, "row 2: task_id must be a number or a name"),
    ],
)
def test_a_bad_row_is_named_or_skipped(tmp_path, change, message):
    source = PairSource(write(tmp_path, [GOOD, {**GOOD, **change}]))
    with pytest.raises(RecipeError, match=message):
        read_pairs(source, tmp_path)
    assert len(read_pairs(source, tmp_path, skip_bad=True)) == 1


def test_a_line_that_is_not_an_object_is_named(tmp_path):
    source = PairSource(write(tmp_path, [GOOD, ["a", "b"]]))
    with pytest.raises(RecipeError, match="row 2: not an object"):
        read_pairs(source, tmp_path)
    assert len(read_pairs(source, tmp_path, skip_bad=True)) == 1


def test_negatives_are_sampled_and_pairs_may_have_none(tmp_path):
    many = write(tmp_path, [{**GOOD, "neg": [["P: ", f"{i}"] for i in range(5)]}])
    samples = [read_pairs(PairSource(many, negatives=2), tmp_path, seed=1)[0].negatives for _ in range(2)]
    assert samples[0] == samples[1] and len(samples[0]) == 2
    path = write(tmp_path, [{key: GOOD[key] for key in ("query", "pos", "task_id")}], "alone.jsonl")
    assert read_pairs(PairSource(path, negatives=0), tmp_path)[0].negatives == ()
    with pytest.raises(RecipeError, match="has 5 negatives of 6"):
        read_pairs(PairSource(many, negatives=6), tmp_path)


def test_questions_are_paired_with_their_passages(tmp_path):
    rows = [{"input": "Cats sleep.", "instruction": "Who sleeps?", "split": split} for split in ("train", "test")]
    source = PairSource(write(tmp_path, rows), "qa", "Q: ", "P: ", keep={"split": "train"})
    (pair,) = read_pairs(source, tmp_path)
    assert (pair.query, pair.positive, pair.negatives) == (
        InstructedText("Q: ", "Who sleeps?"),
        InstructedText("P: ", "Cats sleep."),
        (),
    )
    bad = PairSource(write(tmp_path, [{"input": "", "instruction": "Why?"}], "bad.jsonl"), "qa")
    with pytest.raises(RecipeError, match="row 1: input must be a non-empty text, not ''"):
        read_pairs(bad, tmp_path)


def test_entailed_hypotheses_are_positives_against_contradictions(tmp_path):
    rows = [
        {"premise": premise, "hypothesis": hypothesis, "label": label}
        for premise, hypothesis, label in (
            ("p", "is", "entailment"),
            ("p", "maybe", "neutral"),
            ("p", "also", "entailment"),
            ("p", "not", "contradiction"),
            ("alone", "is", "entailment"),
        )
    ]
    pairs = read_pairs(PairSource(write(tmp_path, rows), "nli", "I: ", "I: "), tmp_path)
    assert [(row.query.text, row.positive.text, row.negatives[0].text) for row in pairs] == [
        ("p", "is", "not"),
        ("p", "also", "not"),
    ]


def make_labelled(labels):
    return [{"premise": "p", "hypothesis": f"h {label}", "label": label} for label in labels]


@pytest.mark.parametrize("labels", [(1, 0), ("1", "0"), (True, False), ("entailed",), (None,)])
def test_other_labels_of_pairs_are_refused(tmp_path, labels):
    source = PairSource(write(tmp_path, make_labelled(labels)), "nli")
    message = rf"row 1: label must be entailment, neutral or contradiction, not {labels[0]!r}"
    hint = "; in pairs with labels 0 and 1, write entailment for 1 and contradiction for 0" if str(labels[0]) == "1" else r"\."
    with pytest.raises(RecipeError, match=message + hint):
        read_pairs(source, tmp_path)


def test_pairs_with_labels_in_the_form_of_medi_are_told_their_format(tmp_path):
    rows = [{"sentence1": "p", "sentence2": "h", "label": 1}]
    with pytest.raises(RecipeError, match=r"row 1: task_id .*; pairs with labels are read by the source's format: nli"):
        read_pairs(PairSource(write(tmp_path, rows)), tmp_path)


def test_renamed_labels_train_with_and_without_hard_negatives(tmp_path):
    name = write(tmp_path, make_labelled(["entailment", "contradiction", "-"]))
    (pair,) = read_pairs(PairSource(name, "nli"), tmp_path)
    assert (pair.query.text, pair.positive.text, pair.negatives[0].text) == ("p", "h entailment", "h contradiction")
    data = PairData((PairSource(write(tmp_path, make_labelled(["entailment"]), "only.jsonl"), "nli"),), str(tmp_path))
    with pytest.raises(RecipeError, match=r"No row of only.jsonl is left.* set the source's negatives to 0 to keep it"):
        load_pairs(data)
    (pair,) = read_pairs(PairSource("only.jsonl", "nli", negatives=0), tmp_path)
    assert (pair.positive.text, pair.negatives) == ("h entailment", ())


def test_sources_and_tasks_are_sampled_up_to_their_caps(tmp_path):
    rows = [{**GOOD, "query": ["Q: ", str(i)], "task_id": i % 2} for i in range(40)]
    name = write(tmp_path, rows)

    def load(seed=0, **settings):
        return [row.query.text for row in load_pairs(PairData((PairSource(name, **settings),), str(tmp_path)), seed)]

    assert len(load(cap=7)) == 7 and load(cap=7) == load(cap=7) != load(cap=7, seed=1)
    assert sorted(int(text) % 2 for text in load(task_cap=5)) == [0] * 5 + [1] * 5
    assert len(load(task_cap=5, cap=8)) == 8
    with pytest.raises(RecipeError, match=r"No row of m.jsonl is left"):
        load(max_characters=0)


def test_questions_and_contexts_need_no_fields(tmp_path):
    (tmp_path / "own.csv").write_text("context,question,answer\nThe tea was cold.,What was cold?,tea\n")
    (pair,) = read_pairs(PairSource("own.csv", format="qa"), tmp_path)
    assert (pair.query.text, pair.positive.text) == ("What was cold?", "The tea was cold.")


@pytest.mark.parametrize("filters", [{"keep": {"splt": "train"}}, {"drop_flags": ("cloze",)}])
def test_a_filter_by_an_unknown_column_is_refused(tmp_path, filters):
    (tmp_path / "a.jsonl").write_text(json.dumps({"query": "tea", "pos": "a cup", "task_id": 1}))
    with pytest.raises(RecipeError, match=r"a.jsonl has no column '(splt|flags)' to filter by"):
        read_pairs(PairSource("a.jsonl", negatives=0, **filters), tmp_path)


def test_rows_are_filtered_by_their_instructions(tmp_path):
    rows = [
        {**GOOD, "query": ["Q: ", "asymmetric"]},
        {**GOOD, "query": ["P: ", "symmetric"]},
        {**GOOD, "query": ["P: for the task; ", "mined"], "pos": ["P: for the task; ", "b"]},
    ]
    name = write(tmp_path, rows)

    def list_queries(**settings):
        return [pair.query.text for pair in read_pairs(PairSource(name, **settings), tmp_path)]

    assert list_queries(symmetry="symmetric") == ["symmetric", "mined"]
    assert list_queries(symmetry="asymmetric") == ["asymmetric"]
    assert list_queries(drop_instructions=("P: for the task", "Q")) == ["symmetric"]
    (pair,) = read_pairs(PairSource(name, symmetry="asymmetric", instruction_detail="none"), tmp_path)
    assert (pair.query, pair.positive, *pair.negatives) == (("", "asymmetric"), ("", "b"), ("", "c"))


def test_instructions_are_shortened_to_text_type_or_task(tmp_path):
    query, passage = (
        "Represent the Wikipedia question for retrieving supporting documents: ",
        "Represent the document for retrieval: ",
    )
    row = {"query": [query, "a"], "pos": [passage, "b"], "neg": [passage, "c"], "task_name": "nq"}
    name = write(tmp_path, [row, {**row, "neg": "d"}])

    def list_instructions(level):
        pairs = read_pairs(PairSource(name, instruction_detail=level), tmp_path)
        return [[text.instruction for text in (pair.query, pair.positive, *pair.negatives)] for pair in pairs]

    assert list_instructions("whole") == [[query, passage, passage], [query, passage, ""]]
    short = ["Wikipedia question; Input: ", "document; Input: "]
    assert list_instructions("simple") == [[*short, short[1]], [*short, ""]]
    assert list_instructions("tag") == [["nq; Input: "] * 3] * 2
    with pytest.raises(RecipeError, match="row 1: the instruction 'Q: ' does not begin with 'Represent the'"):
        read_pairs(PairSource(write(tmp_path, [{**row, "query": ["Q: ", "a"]}]), instruction_detail="simple"), tmp_path)


def test_a_number_is_read_as_text(tmp_path):
    rows = [{**GOOD, "pos": ["P: ", 7], "neg": ["P: ", 0.5]}]
    (pair,) = read_pairs(PairSource(write(tmp_path, rows)), tmp_path)
    assert (pair.positive.text, pair.negatives[0].text) == ("7", "0.5")
