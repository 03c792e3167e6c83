# ruff: noqa: F811 - a fixture that is imported
"""Input tables and the tables that commands write from them."""

import csv
import datetime
import uuid

import pyarrow
import pyarrow.parquet
import pytest

from inbedder import __version__
from inbedder.io.tables import read_rows
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture

TEXTS = ["I love cats", "The box was crushed and late", "How do I top up my account?", "I love dogs"]
OWN = ["id", "title", "review", "name", "day", "stars"]


def rows():
    """Make a table with columns of several types, in which the texts are neither the first nor the only column."""
    day = datetime.date(2024, 1, 31)
    stars = ["good", "bad", "", "good"]
    return [
        {"id": f"00{i}", "title": f"Title {i}", "review": text, "name": "Ann", "day": day + datetime.timedelta(i), "stars": label}
        for i, (text, label) in enumerate(zip(TEXTS, stars, strict=True))
    ]


def write_csv(path, delimiter=";"):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, OWN, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows())


def test_the_version_is_printed(monkeypatch, capsys):
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"inbedder {__version__}\n"


def test_a_table_comes_back_with_all_its_columns_and_rows_in_their_order(folder, monkeypatch, make_model, capsys):
    write_csv(folder / "t.csv")
    lines = (folder / "t.csv").read_text(encoding="utf-8-sig").splitlines()
    (folder / "t.csv").write_text("\n".join([*lines[:3], "9;no text;;Ann;2024-01-01;bad", "10;too short", *lines[3:]]))
    options = ("--text-column", "review", "--skip-bad", "-i", "What?", "-k", "2", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "t.csv", *options, "-o", "out.csv", "-o", "out.parquet", "-o", "out.jsonl") == 0
    errors = capsys.readouterr().err
    assert "Skipped 2 bad rows." in errors
    assert "The written table leaves out 1 unreadable row." in errors
    rows_read = read_rows("out.csv")
    assert list(rows_read[0]) == [*OWN, "group", "group_name", "answer", "fit", "between"]
    assert [row["id"] for row in rows_read] == ["000", "001", "9", "002", "003"]
    assert [row["day"] for row in rows_read] == ["2024-01-31", "2024-02-01", "2024-01-01", "2024-02-02", "2024-02-03"]
    assert [rows_read[2][name] for name in ("group", "group_name", "answer", "fit", "between")] == [""] * 5
    assert {row["group"] for row in rows_read} == {"1", "2", ""}
    assert all(-1 <= float(row["fit"]) <= 1 for row in rows_read if row["fit"])
    typed = read_rows("out.parquet")
    assert typed == read_rows("out.jsonl")
    assert [str(row["group"] or "") for row in typed] == [row["group"] for row in rows_read]
    cells = [line.split() for line in errors.splitlines()]
    sizes = {line[0]: int(line[1]) for line in cells if len(line) > 2 and line[0] in "12" and line[1].isdigit()}
    assert sizes == {group: [row["group"] for row in rows_read].count(group) for group in "12"}


def test_a_column_of_the_user_is_not_replaced(folder, monkeypatch, make_model):
    (folder / "t.csv").write_text("text,group,answer\n" + "".join(f"{text},mine,{i}\n" for i, text in enumerate(TEXTS)))
    assert run(monkeypatch, "cluster", "t.csv", "-i", "What?", "-k", "2", "--model", make_model("bert"), "-o", "out.csv") == 0
    rows_read = read_rows("out.csv")
    assert list(rows_read[0]) == ["text", "group", "answer", "group_2", "group_name", "answer_2", "fit", "between"]
    assert [(row["group"], row["answer"]) for row in rows_read] == [("mine", str(i)) for i in range(4)]


def test_a_workbook_comes_back_as_one(folder, monkeypatch, make_model):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for cells in (OWN, *(list(row.values()) for row in rows())):
        book.active.append(cells)
    book.save(folder / "t.xlsx")
    options = ("--text-column", "title", "--text-column", "review", "-i", "What?", "-k", "2", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "t.xlsx", *options, "-o", "out.xlsx") == 0
    rows_read = read_rows("out.xlsx")
    expected_rows = [{**row, "stars": row["stars"] or None} for row in rows()]
    assert [{name: row[name] for name in OWN} for row in rows_read] == expected_rows
    assert {row["group"] for row in rows_read} == {1, 2}
    assert run(monkeypatch, "answer", "t.xlsx", *options[:6], "--model", make_model("bert"), "-o", "answers.xlsx") == 0
    answered_rows = read_rows("answers.xlsx")
    assert [{name: row[name] for name in OWN} for row in answered_rows] == expected_rows and "answer" in answered_rows[0]


def test_dates_of_parquet_survive(folder, monkeypatch, make_model):
    table = pyarrow.Table.from_pylist([{**row, "when": datetime.datetime(2024, 1, 1, i)} for i, row in enumerate(rows())])
    pyarrow.parquet.write_table(table, "t.parquet")
    options = ("--text-column", "review", "-i", "What?", "-k", "2", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "t.parquet", *options, "-o", "out.parquet") == 0
    written_table = pyarrow.parquet.read_table("out.parquet")
    assert written_table.select(table.column_names).to_pylist() == table.to_pylist()
    assert [written_table.schema.field(name).type for name in table.column_names] == table.schema.types


def test_label_columns_are_compared_and_blanks_are_counted(folder, monkeypatch, make_model, capsys):
    write_csv(folder / "t.csv")
    (folder / "t.csv").write_text((folder / "t.csv").read_text(encoding="utf-8-sig").replace("Ann", " "))
    options = ("--text-column", "review", "-i", "What?", "-k", "2", "--model", make_model("bert"))
    columns = ("--label-column", "stars", "--label-column", "day", "--label-column", "name")
    assert run(monkeypatch, "cluster", "t.csv", *options, *columns) == 0
    errors = capsys.readouterr().err
    assert "Column 'stars': V-measure " in errors
    assert "1 texts have no label" in errors
    assert "Column 'day': V-measure " in errors
    assert "No text has a label in column 'name'." in errors
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f"against your column <bdi>{name}</bdi>" in page for name in ("stars", "day"))
    assert run(monkeypatch, "cluster", "t.csv", *options, "--label-column", "satrs") == 1
    assert "No column 'satrs'. The columns are: 'id', 'title'" in capsys.readouterr().err


@pytest.mark.parametrize(("delimiter", "character"), [("tab", "\t"), (";", ";"), (":", ":")])
def test_a_delimiter_can_be_named(folder, monkeypatch, make_model, delimiter, character):
    (folder / "t.csv").write_text(f"text{character}a,b,c\nI love cats{character}1,2,3\nI love dogs{character}1,2\n")
    assert run(monkeypatch, "embed", "t.csv", "--delimiter", delimiter, "--model", make_model("bert")) == 0
    assert run(monkeypatch, "embed", "t.csv", "--delimiter", f"{delimiter}{delimiter}", "--model", make_model("bert")) == 2


def test_ray_takes_one_text_column_and_no_delimiter(folder, monkeypatch, capsys):
    options = ("--engine", "ray", "-o", "vectors", "--model", "no/such-model")
    for ray_options in (("--text-column", "review", "--text-column", "stars"), ("--delimiter", ";")):
        assert run(monkeypatch, "embed", "reviews.csv", *options, *ray_options) == 2
        assert "--engine ray reads tables with one text column" in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_texts_in_an_unknown_language_give_one_warning(folder, monkeypatch, capsys, make_model):
    (folder / "t.txt").write_text("Die Lieferung war leider verspätet\n" * 2 + "Der Karton wurde völlig zerdrückt\n" * 3)
    options = ("-i", "What?", "--model", make_model("bert"))
    for command in (["answer"], ["embed"], ["cluster", "-i", "Why?", "-k", "2"]):
        assert run(monkeypatch, command[0], "t.txt", *command[1:], *options) == 0
        assert capsys.readouterr().err.count("warning: 100% of the texts seem to be in a language") == 1


def test_groups_and_questions_with_equal_answers_are_reported(folder, monkeypatch, capsys, make_model):
    answers = moods = ["good", "bad"] * 10

    def encode_and_answer(model, texts, instruction, *_):
        return model.encode(texts, instruction), answers

    (folder / "t.txt").write_text("".join(f"text {i} is {mood}\n" for i, mood in enumerate(moods)))
    monkeypatch.setattr("inbedder.embedder.InBedder._encode_and_answer", encode_and_answer)
    options = ("-i", "How is it?", "-i", "How fast is it?", "-k", "1", "-o", "out.csv", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "t.txt", *options) == 0
    assert "100% of the answers to 'How fast is it?' equal those to 'How is it?'" in capsys.readouterr().err
    answers = ["good"] * 20
    assert run(monkeypatch, "cluster", "t.txt", "-i", "How is it?", "-k", "3", *options[6:]) == 0
    assert "Groups 1, 2 and 3 hardly differ in their answers (mostly 'good')" in capsys.readouterr().err
    assert run(monkeypatch, "cluster", "t.txt", "-i", "How is it?", *options[6:]) == 0
    assert "The groups hardly differ in their answers (mostly 'good')" in capsys.readouterr().err
    assert {row["group"] for row in read_rows("out.csv")} == {"1", "2"}


def test_texts_that_fit_no_group_have_no_number(folder, monkeypatch, capsys, make_model):
    (folder / "t.csv").write_text("text,kind\nI love cats,a\nI love dogs,b\n")
    options = ("-i", "What?", "--method", "hdbscan", "--label-column", "kind", "--model", make_model("bert"), "-o", "out.csv")
    assert run(monkeypatch, "cluster", "t.csv", *options) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "              2  none of these" in lines
    assert "         a 50%, b 50%" in lines
    assert [(row["group"], row["group_name"]) for row in read_rows("out.csv")] == [("", "none of these")] * 2


@pytest.mark.parametrize("failing", ["a.xlsx", "b.html", "groups"])
def test_an_output_that_fails_does_not_keep_others_away(folder, monkeypatch, make_model, capsys, failing):
    def refuse(*_args, **_options):
        raise ValueError

    names = {"a.xlsx": "inbedder.io.outputs.write_sheet", "b.html": "inbedder.grouping.report.page.save_report"}
    monkeypatch.setattr(names.get(failing, "inbedder.grouping.assign.grouping.Grouping.save"), refuse)
    outputs = ["a.xlsx", "b.html", "c.csv"]
    options = [word for name in outputs for word in ("-o", name)]
    arguments = ("-i", "What?", "-k", "2", "--model", make_model("bert"), "--save", "groups", *options)
    assert run(monkeypatch, "cluster", "reviews.csv", *arguments) == 1
    message = capsys.readouterr().err
    assert f"error: Cannot write '{failing}': ValueError" in message
    written_names = [name for name in [*outputs, "groups"] if name != failing]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*written_names, "reviews.csv"])
    assert f"Written: {', '.join(name for name in written_names if name != 'groups')}" in message


def test_ids_and_bytes_of_a_table_are_written_as_text(folder, monkeypatch, make_model):
    ids = [uuid.uuid4() for _ in TEXTS]
    columns = {"text": TEXTS, "id": pyarrow.array([key.bytes for key in ids], pyarrow.uuid()), "raw": [b"\xff"] * len(TEXTS)}
    pyarrow.parquet.write_table(pyarrow.table(columns), "t.parquet")
    outputs = ["o.xlsx", "o.csv", "o.jsonl", "o.parquet"]
    options = [word for name in outputs for word in ("-o", name)]
    arguments = ("--text-column", "text", "-i", "What?", "-k", "2", "--model", make_model("bert"), *options)
    assert run(monkeypatch, "cluster", "t.parquet", *arguments) == 0
    for name in outputs:
        assert [str(row["id"]) for row in read_rows(name)] == [str(key) for key in ids]
    assert {row["raw"] for row in read_rows("o.xlsx")} == {"\\xff"}


def test_the_parts_of_documents_are_grouped_and_shares_written(folder, monkeypatch, make_model):
    (folder / "letters.csv").write_text('id,text\n1,"a b c d"\n2,"e f"\n')
    options = (
        "-i",
        "What?",
        "-k",
        "2",
        "--split",
        "2",
        "--by",
        "id",
        "--model",
        make_model("bert"),
        "-o",
        "out.csv",
        "-o",
        "p.html",
    )
    assert run(monkeypatch, "cluster", "letters.csv", *options) == 0
    rows = read_rows("out.csv")
    assert [row["id"] for row in rows] == ["1", "2"] and list(rows[0]) == ["id", "text", "group", "group_name", "groups"]
    assert all("%" in row["groups"] for row in rows)
    assert rows[1]["groups"].endswith(" 100%")
    page = (folder / "p.html").read_text("utf-8")
    assert '"texts":["a b","c d","e f"]' in page and '"numbers":[1,1,2]' in page and '"shares":["' in page


def test_a_page_holds_the_model_that_answers_further_questions(folder, monkeypatch, late_adapter):
    write_csv(folder / "t.csv")
    options = ("--text-column", "review", "-i", "What?", "-k", "2", "--model", str(late_adapter), "--ask-in-page")
    assert run(monkeypatch, "cluster", "t.csv", *options, "-o", "page.html", "-o", "out.csv") == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.count('id="ask-weights"') == page.count("'wasm-unsafe-eval'") == 1


@pytest.mark.parametrize(
    ("model", "output", "reason"), [("bert", "page.html", "Only mini"), ("late", "out.csv", "-o report.html")]
)
def test_a_model_that_does_not_fit_a_page_is_refused_first(
    folder, monkeypatch, make_model, late_adapter, capsys, model, output, reason
):
    write_csv(folder / "t.csv")
    name = str(late_adapter) if model == "late" else make_model(model)
    options = ("--text-column", "review", "-i", "What?", "--model", name, "--ask-in-page", "-o", output)
    assert run(monkeypatch, "cluster", "t.csv", *options) != 0
    assert reason in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert not (folder / output).exists()
