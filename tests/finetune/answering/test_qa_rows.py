import gzip
import json
from pathlib import Path

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.qa_rows import find_right_choice, hold_out, load_rows, load_stopwords, read_rows, strip_stopwords
from inbedder_finetune.questions import read_questions
from inbedder_finetune.registry import read_method
from inbedder_finetune.sources import Source

ROOT = Path(__file__).parents[3]


def write(path, rows):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "a.jsonl.gz", [{"input": f"text {i}", "instruction": "Why?", "output": f"the {i}"} for i in range(50)])
    moods = ["joy", "anger", "other"]
    rows = [{"input": f"mood {i} {'x' * i}", "instruction": "How?", "output": moods[i % 3]} for i in range(30)]
    write(tmp_path / "b.jsonl", rows)
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "stripped"),
    [
        ("use the sea water", "use sea water"),
        ("In New York.", "New York"),
        ("No, it is not.", "No not"),
        ("He does n't know", "n't know"),
        ("all 3 of them", "all 3"),
        ("of the", "of the"),
        ("  To   be ", "To be"),
        ("New York-based company", "New York-based company"),
    ],
)
def test_our_list_strips_punctuation_and_keeps_negations(answer, stripped):
    assert strip_stopwords(answer) == stripped


@pytest.mark.parametrize(
    ("answer", "stripped"),
    [
        ("use the sea water", "use sea water"),
        ("No, it is not.", "No, it is not."),
        ("No, it is not red.", ", red ."),
        ("He doesn't know Anna's dog.", "n't know Anna 's dog ."),
        ("all 3 of them", "3"),
        ("In New York.", "New York ."),
        ("not at all", "not at all"),
    ],
)
def test_nltks_list_strips_negations_and_keeps_punctuation(answer, stripped):
    assert strip_stopwords(answer, "nltk") == stripped


def test_only_nltks_stopword_list_holds_negations():
    assert len(load_stopwords()) > 100
    assert not load_stopwords() & {"no", "not", "nor", "n't", "never", "none"}
    assert len(load_stopwords("nltk")) == 179
    assert {"no", "not", "nor", "few", "all", "don't", "mightn't", "ve"} <= load_stopwords("nltk")
    assert not {"n't", "'s", "never", "would"} & load_stopwords("nltk")


def test_the_lists_strip_few_of_the_tiny_answers_differently():
    lines = (ROOT / "tests" / "data" / "tiny" / "qa.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["output"] for line in lines]
    differ = sum(strip_stopwords(answer) != strip_stopwords(answer, "nltk") for answer in answers)
    assert (differ, len(answers)) == (9, 240)


def test_a_recipe_chooses_the_list(tmp_path):
    write(tmp_path / "d.jsonl", [{"input": "a", "instruction": "Is it?", "output": "It is not Anna's."}])
    answers = [load_rows(AnsweringData(folder=str(tmp_path), sources=(Source("d.jsonl"),), stopwords=stopword_list))[0].answer
               for stopword_list in ("ours", "nltk")]  # fmt: skip
    assert answers == ["not Anna", "Anna 's ."]


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-2-7b-qlora", "opt-1.3b", "opt-2.7b", "roberta-large"])
def test_the_papers_recipes_train_stripped_answers_as_they_are(name, tmp_path):
    write(tmp_path / "d.jsonl", [{"input": "a", "instruction": "Where?", "output": "New York, NY"}])
    changes = [f"data.folder={tmp_path}", "data.sources=[d.jsonl]"]
    _, recipe = read_method(name, changes)
    assert [row.answer for row in load_rows(recipe.data)] == ["New York, NY"]
    _, recipe = read_method(name, [*changes, "data.strip_stopwords=true"])
    assert [row.answer for row in load_rows(recipe.data)] == ["New York , NY"]


def test_sources_apply_caps_answers_instructions_and_distractors(folder):
    data = AnsweringData(
        folder=str(folder),
        sources=(
            Source("a.jsonl.gz", cap=5),
            Source("b.jsonl", answers={"joy": "positive", "anger": "negative"}, instructions=("Good or bad?", "Polarity?")),
            Source("b.jsonl", keep_instructions=("How?",), max_characters=20, distractors="a.jsonl.gz"),
        ),
    )
    rows = load_rows(data, seed=1)
    assert [row.answer.isdigit() for row in rows[:5]] == [True] * 5
    assert {row.answer for row in rows[5:25]} == {"positive", "negative"}
    assert {row.instruction for row in rows[5:25]} == {"Good or bad?", "Polarity?"}
    assert all("mood" in row.text and "text" in row.text for row in rows[25:])
    assert {row.text.startswith("mood") for row in rows[25:]} == {True, False}


def test_the_answer_can_come_from_another_field(tmp_path):
    write(tmp_path / "c.jsonl", [{"input": "a taxi", "instruction": "Why?", "output": "book", "domain": "rides"}])
    data = AnsweringData(folder=str(tmp_path), sources=(Source("c.jsonl", answer_column="domain", answers={"rides": "taxi"}),))
    assert load_rows(data)[0].answer == "taxi"
    with pytest.raises(RecipeError, match=r"row 1: .*colour"):
        load_rows(AnsweringData(folder=str(tmp_path), sources=(Source("c.jsonl", answer_column="colour"),)))


def test_the_sample_depends_on_the_seed(folder):
    data = AnsweringData(folder=str(folder), sources=(Source("a.jsonl.gz", cap=5),))
    assert load_rows(data, 1) == load_rows(data, 1)
    assert load_rows(data, 1) != load_rows(data, 2)


def test_answers_stay_unstripped_on_request(folder):
    data = AnsweringData(folder=str(folder), sources=(Source("a.jsonl.gz", cap=1),), strip_stopwords=False)
    assert load_rows(data)[0].answer.startswith("the ")


@pytest.mark.parametrize("line", ["not json", '{"input": "a"}', '{"input": 1, "instruction": "q", "output": "a"}', '["list"]'])
def test_a_bad_row_is_named_or_skipped(tmp_path, line):
    good = json.dumps({"input": "a", "instruction": "q", "output": "b"})
    (tmp_path / "c.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(RecipeError, match=r"c\.jsonl, row 2: not a question-answer row"):
        read_rows(Source("c.jsonl"), tmp_path)
    assert len(read_rows(Source("c.jsonl"), tmp_path, skip_bad=True)) == 2


def test_a_missing_file_says_which_setting_to_change(tmp_path):
    with pytest.raises(RecipeError, match=r"Set data\.folder"):
        read_rows(Source("none.jsonl"), tmp_path)


def test_a_file_that_is_not_gzip_is_named(tmp_path):
    (tmp_path / "d.jsonl.gz").write_text("plain")
    with pytest.raises(RecipeError, match=r"Cannot read .*d\.jsonl\.gz"):
        read_rows(Source("d.jsonl.gz"), tmp_path)


def test_nothing_left_is_an_error(folder):
    with pytest.raises(RecipeError, match=r"No row of b\.jsonl is left"):
        load_rows(AnsweringData(folder=str(folder), sources=(Source("b.jsonl", answers={"none": "x"}),)))


def test_tables_and_json_are_read_with_column_names(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    records = [{"context": f"text {i}", "question": "Why?", "answer": f"a{i}", "input": "wrong"} for i in range(3)]
    fields = {"input": "context", "instruction": "question", "output": "answer"}
    (tmp_path / "a.json").write_text(json.dumps(records))
    (tmp_path / "a.csv").write_text("context,question,answer\n" + "".join(f"text {i},Why?,a{i}\n" for i in range(3)))
    with gzip.open(tmp_path / "a.tsv.gz", "wt") as file:
        file.write("context\tquestion\tanswer\n" + "".join(f"text {i}\tWhy?\ta{i}\n" for i in range(3)))
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    for name in ("a.json", "a.csv", "a.tsv.gz", "a.parquet"):
        rows = read_rows(Source(name, fields=fields), tmp_path)
        assert [(row.text, row.instruction, row.answer) for row in rows] == [(f"text {i}", "Why?", f"a{i}") for i in range(3)]
    (tmp_path / "b.csv").write_text("body,question,answer\ntext,Why?,a\n")
    with pytest.raises(RecipeError, match=r"b\.csv, row 1: .*KeyError"):
        read_rows(Source("b.csv"), tmp_path)
    (tmp_path / "a.xls").write_text("x")
    with pytest.raises(RecipeError, match=r"unknown file type '.xls'"):
        read_rows(Source("a.xls"), tmp_path)


@pytest.mark.parametrize(
    ("answer", "right"), [(1, "dog"), ("1", "dog"), ("B", "dog"), ("(c)", "eel"), ("cat", "cat"), ("a.", "cat")]
)
def test_the_right_choice_is_found(answer, right):
    assert find_right_choice(["cat", "dog", "eel"], answer) == right


def test_a_row_with_an_invalid_choice_is_named(tmp_path):
    row = {"input": "t", "instruction": "Which?", "options": ["a", "b"], "label": 4}
    write(tmp_path / "m.jsonl", [row])
    source = Source("m.jsonl", fields={"output": "label"}, choices="options")
    with pytest.raises(RecipeError, match=r"m\.jsonl, row 1: .*4 is not one of the choices"):
        read_rows(source, tmp_path)
    write(tmp_path / "m.jsonl", [{**row, "label": 1}])
    assert read_rows(source, tmp_path)[0].answer == "b"


def test_flags_columns_lengths_and_weights_choose_rows(tmp_path):
    base = {"instruction": "Why?", "output": "so"}
    rows = [
        {**base, "input": "x" * i, "split": "train" if i % 2 else "dev", "flags": ["cloze"] if i == 9 else []} for i in range(12)
    ]
    write(tmp_path / "f.jsonl", rows)

    def lengths(**choice):
        return [len(row.text) for row in load_rows(AnsweringData(folder=str(tmp_path), sources=(Source("f.jsonl", **choice),)))]

    assert lengths(keep={"split": "train"}) == [1, 3, 5, 7, 9, 11]
    assert lengths(drop_flags=("cloze",), min_characters=7) == [7, 8, 10, 11]
    assert sorted(lengths(weight=2, min_characters=10)) == [10, 10, 11, 11]
    assert len(lengths(weight=0.5)) == 6
    assert len(lengths(weight=1.25)) == 15


def test_a_hub_data_set_is_streamed_and_a_missing_one_named(monkeypatch):
    import datasets

    arguments = {}

    def load_dataset(path, config, **options):
        arguments.update(options, path=path, config=config)
        return iter([{"input": "t", "instruction": "Why?", "output": "so much"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = Source(hub="someone/set", split="dev", revision="05bec95" + "0" * 33)
    assert load_rows(AnsweringData(sources=(source,)))[0].source == "someone/set"
    assert (arguments["path"], arguments["split"], arguments["revision"], arguments["streaming"]) == (
        "someone/set",
        "dev",
        source.revision,
        True,
    )

    def unreachable(*_args, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(RecipeError, match=r"Cannot read someone/set from the hub .*no route.*set path to its file"):
        load_rows(AnsweringData(sources=(source,)))


def test_held_out_rows_share_no_text_with_training_rows(folder):
    rows = load_rows(AnsweringData(folder=str(folder), sources=(Source("a.jsonl.gz", weight=3),)))
    train_rows, held_out_rows = hold_out(rows, 20, seed=1)
    assert len(train_rows) + len(held_out_rows) == 150
    assert 20 <= len(held_out_rows) <= 22
    assert not {row.text for row in train_rows} & {row.text for row in held_out_rows}
    assert hold_out(rows, 0) == (rows, [])
    with pytest.raises(RecipeError, match="leaves none of 150 rows"):
        hold_out(rows, 200)


def test_choices_may_be_a_table_but_not_a_string():
    assert find_right_choice({"text": ["cat", "dog"], "label": ["A", "B"]}, "B") == "dog"
    with pytest.raises(TypeError, match="choices must be a list"):
        find_right_choice("cat|dog", 0)


def test_a_long_cell_is_read_and_a_truncated_file_named(tmp_path):
    (tmp_path / "long.csv").write_text(f"input,instruction,output\n{'x' * 200_000},Why?,so\n")
    assert len(read_rows(Source("long.csv"), tmp_path)[0].text) == 200_000
    content = gzip.compress(b'{"input": "a", "instruction": "b", "output": "c"}\n' * 1000)
    (tmp_path / "cut.jsonl.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(RecipeError, match=r"Cannot read .*cut\.jsonl\.gz"):
        read_rows(Source("cut.jsonl.gz"), tmp_path)


def test_distractors_that_are_all_too_long_are_refused(folder):
    data = AnsweringData(folder=str(folder), sources=(Source("a.jsonl.gz", max_characters=6, distractors="b.jsonl"),))
    with pytest.raises(RecipeError, match=r"b.jsonl has no text of at most 6 characters. Choose other"):
        load_rows(data)


def test_sources_of_one_file_may_share_texts_and_distractors(folder):
    sources = (
        Source("a.jsonl.gz", cap=5),
        Source("a.jsonl.gz", cap=9, instructions=("Who?",)),
        Source("a.jsonl.gz", cap=5, distractors="b.jsonl"),
        Source("b.jsonl", cap=5, distractors="a.jsonl.gz", target="text"),
    )
    rows = load_rows(AnsweringData(folder=str(folder), sources=sources, same_texts=True))
    first, second, third, fourth = ([row.text for row in rows[a:b]] for a, b in ((0, 5), (5, 14), (14, 19), (19, 24)))
    assert first == second[:5]
    assert third == fourth
    assert rows[19].target_text == fourth[0]
    assert rows != load_rows(AnsweringData(folder=str(folder), sources=sources, same_texts=True), seed=1)


def test_runs_with_different_seeds_may_share_rows(folder):
    sources = (Source("a.jsonl.gz", cap=5, instructions=("Who?", "What?", "Why?", "When?")),)
    unseeded, seeded = (
        AnsweringData(folder=str(folder), sources=sources),
        AnsweringData(folder=str(folder), sources=sources, seed=3),
    )
    assert load_rows(unseeded, seed=1) != load_rows(unseeded, seed=3)
    assert load_rows(seeded, seed=1) == load_rows(seeded, seed=2) == load_rows(unseeded, seed=3)


def test_a_source_may_limit_the_rows_per_text(tmp_path):
    write(tmp_path / "a.jsonl", [{"input": f"t{i % 3}", "instruction": "Why?", "output": str(i)} for i in range(30)])
    for same_texts in (False, True):
        data = AnsweringData(folder=str(tmp_path), sources=(Source("a.jsonl", max_rows_per_text=2),), same_texts=same_texts)
        texts = [row.text for row in load_rows(data)]
        assert sorted(texts) == ["t0", "t0", "t1", "t1", "t2", "t2"]


def test_tables_of_context_question_and_answer_need_no_fields(tmp_path):
    (tmp_path / "own.csv").write_text("id,Context,Question,Answer\n1,The tea was cold.,What was cold?,the tea\n")
    squad = {
        "context": "The tea was cold.",
        "question": "What was cold?",
        "answers": {"text": ["tea", "the tea"], "answer_start": [4, 0]},
    }
    write(tmp_path / "squad.jsonl", [squad])
    for name, answer in (("own.csv", "the tea"), ("squad.jsonl", "tea")):
        (row,) = read_rows(Source(name), tmp_path)
        assert (row.text, row.instruction, row.answer) == ("The tea was cold.", "What was cold?", answer)
    with pytest.raises(RecipeError, match="not a question-answer row"):
        read_rows(Source("squad.jsonl", answer_column="label"), tmp_path)


def test_a_question_without_an_answer_is_a_bad_row(tmp_path):
    write(tmp_path / "squad.jsonl", [{"context": "Tea.", "question": "Who?", "answers": {"text": [], "answer_start": []}}])
    with pytest.raises(RecipeError, match="row 1: not a question-answer row"):
        read_rows(Source("squad.jsonl"), tmp_path)


@pytest.mark.parametrize("filters", [{"keep": {"splt": "train"}}, {"drop_flags": ("cloze",)}])
def test_a_filter_by_an_unknown_column_is_refused(tmp_path, filters):
    row = {"input": "tea", "instruction": "What?", "output": "tea", "split": "train"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    column = "splt" if "keep" in filters else "flags"
    with pytest.raises(RecipeError, match=f"a.jsonl has no column '{column}' to filter by. Its columns are: 'input', "):
        read_rows(Source("a.jsonl", **filters), tmp_path)


def test_a_flag_may_be_a_plain_text(tmp_path):
    (tmp_path / "a.csv").write_text("input,instruction,output,flags\ntea,What?,tea,cloze\nlamp,What?,lamp,\n")
    assert [row.text for row in read_rows(Source("a.csv", drop_flags=("cloze",)), tmp_path)] == ["lamp"]


def test_bad_rows_that_are_left_out_are_counted(tmp_path, caplog):
    (tmp_path / "a.csv").write_text("input,instruction,output\ntea,What?,\nlamp,What?,lamp\n")
    assert len(read_rows(Source("a.csv"), tmp_path, skip_bad=True)) == 1
    assert "a.csv: 1 bad rows were left out" in caplog.text


def test_a_file_without_distractors_is_refused(tmp_path):
    row = {"input": "tea", "instruction": "What?", "output": "tea"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    (tmp_path / "none.jsonl").write_text("")
    data = AnsweringData((Source("a.jsonl", distractors="none.jsonl"),), folder=str(tmp_path))
    with pytest.raises(RecipeError, match=r"a.jsonl: none.jsonl has no text. Choose other distractors"):
        load_rows(data)


def test_a_row_may_be_asked_in_several_wordings(folder):
    wordings = ("one?", "two?", "three?")
    source = Source("b.jsonl", instructions=wordings, wordings=2)
    single_rows, rows = (load_rows(AnsweringData((each,), str(folder))) for each in (Source("b.jsonl"), source))
    assert len(rows) == 2 * len(single_rows)
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(a.text == b.text and a.answer == b.answer and {a.instruction, b.instruction} < set(wordings) for a, b in pairs)


def test_a_rows_instruction_may_be_the_name_of_a_question(tmp_path):
    rows = [{"input": "a", "instruction": "open_place", "output": "Oslo"}, {"input": "a", "instruction": "Who?", "output": "Ann"}]
    write(tmp_path / "rows.jsonl", rows)
    source = Source("rows.jsonl", question_names=True, wordings=3)
    instructions = [row.instruction for row in load_rows(AnsweringData((source,), str(tmp_path)))]
    assert len(set(instructions[:3])) == 3 and set(instructions[:3]) <= set(read_questions()["open_place"].ask)
    assert instructions[3:] == ["Who?"]


def test_the_written_answers_are_of_known_questions_and_short():
    rows = read_rows(Source("open_answers.jsonl.gz"))
    named_rows = [row for row in rows if row.instruction in read_questions()]
    assert len(rows) > 30_000 and len(named_rows) > 0.8 * len(rows)
    assert all(len(row.answer.split()) <= 7 for row in rows)
