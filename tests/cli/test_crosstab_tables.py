import numpy as np
import pytest

from inbedder.cli.crosstab_tables import _build_strongest_cells
from inbedder.grouping.compare.crosstab import Categories, count_pairs
from tests.cli.test_cli import run

CALLS = [
    ("cats are great", "de", "2024-03-01"),
    ("the box was late", "fr", "2024-03-02"),
    ("top up my account", "de", "2024-03-03"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{text} {i},{country},{day},{i % 2}" for i in range(6) for text, country, day in CALLS]
    (tmp_path / "calls.csv").write_text("\n".join(["text,country,day,stars", *lines]))
    return tmp_path


def test_questions_and_columns_are_cross_tabulated_in_terminal_and_page(folder, monkeypatch, make_model, capsys):
    options = ("-i", "What?", "-i", "Who?", "-k", "2", "--by", "stars", "--by", "country", "--model", make_model("opt"))
    assert run(monkeypatch, "cluster", "calls.csv", *options, "-o", "r.html") == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    titles = [line.split(" (18 texts")[0] for line in lines if "(18 texts; " in line]
    assert titles == [
        "What? x Who?", "What? x stars", "What? x country", "Who? x stars", "Who? x country"
    ]  # fmt: skip
    header = lines[lines.index(next(line for line in lines if line.startswith("What? x country"))) + 1]
    assert header.split() == ["de", "fr"]
    rows = lines[lines.index(header) + 1 : lines.index(header) + 3]
    assert sum(int(cell) for row in rows for cell in row.split() if cell.isdigit()) == 18
    assert "false discovery rate 5%" in output.err
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert page.count('<table class="heatmap"') == 5 and "<bdi>country</bdi>" in page


def test_groups_are_shown_over_time(folder, monkeypatch, make_model, capsys):
    options = ("-i", "What?", "-k", "2", "--over", "day", "--every", "day", "--model", make_model("opt"), "-o", "r.html")
    assert run(monkeypatch, "cluster", "calls.csv", *options) == 0
    output = capsys.readouterr()
    first, second = output.out.split("First to last day on the fitted line")
    title, header, *rows = first.strip().splitlines()
    assert title == "What? per day of day" and header.split() == ["2024-03-01", "2024-03-02", "2024-03-03"]
    shares = [[int(cell[:-1]) for cell in row.split() if cell.endswith("%")] for row in rows]
    assert [sum(column) for column in zip(*shares, strict=True)] == [100] * 3
    assert "first day  last day" in second and "are printed" not in output.err
    assert "Every text has a date." in output.err
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert page.count('<svg class="chart"') == 2 and 'id="cross-tables"' not in page


def test_the_terminal_says_that_it_prints_only_the_last_periods(folder, monkeypatch, make_model, capsys):
    with (folder / "calls.csv").open("a") as file:
        file.write("\na late call,de,2024-03-20,1")
    options = ("-i", "What?", "-k", "2", "--over", "day", "--model", make_model("opt"), "-o", "r.html")
    assert run(monkeypatch, "cluster", "calls.csv", *options) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[1].split()[0] == "2024-03-09"
    assert "Only the last 12 of 20 days are printed" in output.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "sters"), "No column 'sters'"),
        (("--over", "country"), "'de' is not a date"),
        (("--over", "day", "--every", "fortnight"), "must be day, week, month or auto, not 'fortnight'"),
        (("--over", "day", "--date-format", "%d.%m.%Y"), "'2024-03-01' is not a date in the format %d.%m.%Y"),
    ],
)
def test_an_unsuitable_column_is_refused_before_the_model_is_loaded(folder, monkeypatch, capsys, options, message):
    assert run(monkeypatch, "cluster", "calls.csv", "-i", "What?", *options, "--model", "no/such-model") == 1
    assert message in capsys.readouterr().err
    assert not (folder / "report.html").exists()


def test_options_of_time_need_a_column_of_dates(folder, monkeypatch, capsys):
    for option in (("--every", "week"), ("--date-format", "%Y")):
        assert run(monkeypatch, "cluster", "calls.csv", "-i", "What?", *option) == 2
        assert "these options need --over" in capsys.readouterr().err


def test_a_wide_table_prints_its_strongest_cells():
    row_labels, column_labels = np.arange(400) % 4, np.arange(400) % 20
    axes = (("a", 4, row_labels), ("b", 20, column_labels))
    sides = [Categories("", [f"{side}{i}" for i in range(size)], labels) for side, size, labels in axes]
    grid = _build_strongest_cells(count_pairs(*sides))
    assert [str(cell) for cell in grid.columns[1].cells] == [f"b{i}" for i in (0, 4, 8, 12, 16, 1, 5, 9, 13, 17, 2, 6)]
    assert {str(cell) for cell in grid.columns[2].cells} == {"20"} and {str(cell) for cell in grid.columns[6].cells} == {"+"}


def test_names_in_a_table_neither_style_nor_control_the_terminal(folder, monkeypatch, make_model, capsys):
    (folder / "calls.csv").write_text("text,kind\n" + "".join(f"a cat {i},[red]\x1b[31m\n" for i in range(6)))
    assert run(monkeypatch, "cluster", "calls.csv", "-i", "What?", "-k", "2", "--by", "kind", "--model", make_model("opt")) == 0
    assert "[red]\\x1b[31m" in capsys.readouterr().out
