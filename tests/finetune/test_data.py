import gzip
import json

import pytest

from finetune.data import load_rows, read_rows, stopwords, strip_stopwords
from finetune.recipe import Data, Source
from inbedder.errors import RecipeError


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
def test_stopwords_and_punctuation_go_while_negations_and_numbers_stay(answer, stripped):
    assert strip_stopwords(answer) == stripped


def test_the_list_holds_no_negation():
    assert len(stopwords()) > 100
    assert not stopwords() & {"no", "not", "nor", "n't", "never", "none"}


def test_sources_are_capped_renamed_asked_anew_and_set_beside_others(folder):
    data = Data(
        folder=str(folder),
        sources=(
            Source("a.jsonl.gz", cap=5),
            Source("b.jsonl", answers={"joy": "positive", "anger": "negative"}, instructions=("Good or bad?", "Polarity?")),
            Source("b.jsonl", only=("How?",), max_characters=20, beside="a.jsonl.gz"),
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
    data = Data(folder=str(tmp_path), sources=(Source("c.jsonl", answer_from="domain", answers={"rides": "taxi"}),))
    assert load_rows(data)[0].answer == "taxi"
    with pytest.raises(RecipeError, match=r"line 1: .*colour"):
        load_rows(Data(folder=str(tmp_path), sources=(Source("c.jsonl", answer_from="colour"),)))


def test_the_draw_follows_the_seed(folder):
    data = Data(folder=str(folder), sources=(Source("a.jsonl.gz", cap=5),))
    assert load_rows(data, 1) == load_rows(data, 1)
    assert load_rows(data, 1) != load_rows(data, 2)


def test_answers_stay_whole_when_asked(folder):
    data = Data(folder=str(folder), sources=(Source("a.jsonl.gz", cap=1),), strip_stopwords=False)
    assert load_rows(data)[0].answer.startswith("the ")


@pytest.mark.parametrize("line", ["not json", '{"input": "a"}', '{"input": 1, "instruction": "q", "output": "a"}', '["list"]'])
def test_a_broken_row_is_named_or_skipped(tmp_path, line):
    good = json.dumps({"input": "a", "instruction": "q", "output": "b"})
    (tmp_path / "c.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(RecipeError, match=r"c\.jsonl, line 2: not a question-answer row"):
        read_rows(Source("c.jsonl"), tmp_path)
    assert len(read_rows(Source("c.jsonl"), tmp_path, skip_bad=True)) == 2


def test_a_missing_file_says_which_setting_to_change(tmp_path):
    with pytest.raises(RecipeError, match=r"Set data\.folder"):
        read_rows(Source("none.jsonl"), tmp_path)


def test_a_file_that_is_no_gzip_is_named(tmp_path):
    (tmp_path / "d.jsonl.gz").write_text("plain")
    with pytest.raises(RecipeError, match=r"Cannot read .*d\.jsonl\.gz"):
        read_rows(Source("d.jsonl.gz"), tmp_path)


def test_nothing_left_is_an_error(folder):
    with pytest.raises(RecipeError, match="No row is left"):
        load_rows(Data(folder=str(folder), sources=(Source("b.jsonl", answers={"none": "x"}),)))
