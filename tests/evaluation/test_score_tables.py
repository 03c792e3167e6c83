import pytest
from typer.testing import CliRunner

from inbedder.cli import app as cli
from inbedder.errors import InputError
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.results import load_cells
from inbedder_evaluation.score_tables import build_table, make_score_table, measure_table
from inbedder_evaluation.tasks.question_wordings import build_row
from inbedder_evaluation.tasks.sets import TableRow, read_tables
from tests.evaluation.tasks.test_question_wordings import build_airlines, understands_first_wording
from tests.evaluation.tasks.test_tasks import ignorant
from tests.evaluation.tasks.test_text_evaluation import write
from tests.scripts.stand_ins import write_data

PAIRS = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "score": i % 5} for i in range(10)]


def render_prompt(text, instruction):
    return f"{instruction} {text}"


INSTRUCTED = Embedder("toy", "1", understands_first_wording, render_prompt, instructed=True)
UNINSTRUCTED = Embedder("toy, no instruction", "1", ignorant, lambda text, _: text, instructed=False)


@pytest.fixture
def tasks(tmp_path):
    write(tmp_path / "stsb" / "dev.jsonl.gz", PAIRS)
    return [*build_airlines(tmp_path, ["triplets"]), *build_row(TableRow("sts", "stsb dev", has_question=False), tmp_path, None)]


def test_a_table_shows_mean_and_worst_of_the_wordings(tasks, tmp_path):
    cells = measure_table([INSTRUCTED, UNINSTRUCTED], tasks, tmp_path / "r.json", [0], lambda _cell: None)
    head, *rows, last = make_score_table(cells, tasks)
    assert head == ["set and criterion", "toy mean", "toy worst", "toy unasked"]
    assert [row[0] for row in rows] == [
        "airline_tweets triplets: negative_reason",
        "airline_tweets triplets: airline",
        "stsb dev STS, no question: cosine_spearman",
    ]
    scores = cells[0].scores
    by_wording = [scores[f"airline {number}"] for number in (1, 2, 3)]
    assert by_wording[0] == 100
    assert rows[1][1:3] == [f"{sum(by_wording) / 3:.1f}", f"{min(by_wording):.1f}"]
    assert float(rows[0][3]) + float(rows[1][3]) == pytest.approx(100)
    assert rows[2][1] == rows[2][2] == rows[2][3]
    assert float(last[1]) == pytest.approx(sum(float(row[1]) for row in rows) / 3, abs=0.1)


def test_sets_without_a_question_run_without_one(tasks, tmp_path):
    cells = measure_table([INSTRUCTED, UNINSTRUCTED], tasks, tmp_path / "r.json", [0], lambda _cell: None)
    assert [cell.model for cell in cells if cell.task.startswith("stsb")] == ["toy, no instruction"]


def test_a_model_without_an_unasked_variant_has_no_mean(tasks, tmp_path):
    cells = measure_table([INSTRUCTED], tasks, tmp_path / "r.json", [0], lambda _cell: None)
    *_, row, last = make_score_table(cells, tasks)
    assert row[1:] == last[1:] == ["", ""]


def test_a_worst_wording_is_worst_over_all_seeds(tmp_path):
    tasks = build_airlines(tmp_path, ["clustering"])
    cells = measure_table([INSTRUCTED], tasks, tmp_path / "r.json", [0, 1, 2], lambda _cell: None)
    means = [sum(cell.scores[f"airline {number}"] for cell in cells) / 3 for number in (1, 2, 3)]
    assert make_score_table(cells, tasks)[2][2] == f"{min(means):.1f}"


@pytest.fixture
def folder(tmp_path):
    """Write a folder with synthetic rows for every set of the tables."""
    write_data(tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("table", ["dev", "test"])
def test_every_row_of_a_table_is_built(folder, table):
    tasks = build_table(table, folder, None)
    expected = sum(max(1, len(row.scores)) for row in read_tables()[table])
    assert len({task.info.name for task in tasks}) == len(tasks) == expected


def test_the_command_prints_one_table_and_resumes(folder, tmp_path, make_model):
    output = tmp_path / "r.json"
    options = ["--data", str(folder), "--task", "airline", "--seeds", "1", "--model", make_model("bert"), "-o", str(output)]
    command = ["evaluate", "--table", "dev", *options]
    run = [CliRunner().invoke(cli, command, catch_exceptions=False).output for _ in range(2)]
    assert "airline_tweets clustering: airline" in run[0] and "plain mean of the 4 rows" in run[0] and "seconds" in run[0]
    assert len(load_cells(output)) == 4
    assert [line for line in run[0].splitlines() if "airline" in line] == [
        line for line in run[1].splitlines() if "airline" in line
    ]


def test_a_table_is_refused_without_its_sets(folder, tmp_path):
    with pytest.raises(InputError, match=r"Unknown table 'nope'. Known: dev, test"):
        build_table("nope", folder, None)
    with pytest.raises(InputError, match="needs the folder of the known sets"):
        build_table("dev", None, None)
    with pytest.raises(InputError, match=r"has no clinc150/test.jsonl.gz, airline_tweets/all.jsonl.gz"):
        build_table("dev", tmp_path, None)
    with pytest.raises(InputError, match=r"The dev table has no banking77. Its sets are: clinc150"):
        build_table("dev", folder, None, ["banking77"])
    result = CliRunner().invoke(cli, ["evaluate", "--table", "dev", "--hub", "-o", str(tmp_path / "r.json")])
    assert result.exit_code == 2
