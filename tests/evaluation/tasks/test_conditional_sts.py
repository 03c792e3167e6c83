import datasets
import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from inbedder.errors import InputError
from inbedder.io.outputs import write_records
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, as_question, load_instruct_stsb, read_csts
from inbedder_evaluation.tasks.task import TaskInfo
from tests.evaluation.tasks.test_tasks import ignorant

INFO = TaskInfo("toy", "cosine_spearman", "toy", "1", "none", "")
CSV = """sentence1,sentence2,condition,label
A man rides a red bike,A man drives a red car,The colour of the vehicle.,5
A man rides a red bike,A man drives a red car,The kind of vehicle.,2
Two dogs sleep,Two cats run,The number of animals.,5
Two dogs sleep,Two cats run,What the animals do.,1
A girl sings on stage,A girl sings at home,The place.,1
"""


def test_c_sts_is_measured_on_the_users_own_csv(tmp_path):
    path = tmp_path / "csts_validation.csv"
    path.write_text(CSV)
    task, as_questions = build_tasks(Data(path))
    assert as_questions.info.name == "C-STS (csts_validation.csv), as a question"
    assert as_questions.get_first_input()[1] == "What is the colour of the vehicle?"
    assert [one.info.name for one in build_tasks(Data(path), ["csts"])] == [task.info.name, as_questions.info.name]
    assert task.get_first_input() == ("A man rides a red bike", "The colour of the vehicle.")
    calls = []

    def encode(texts, instructions):
        calls.extend(zip(texts, instructions, strict=True))
        return ignorant([f"{one} {text}" for text, one in zip(texts, instructions, strict=True)], "")

    scores = task.evaluate(encode)
    assert calls[5] == ("A man drives a red car", "The colour of the vehicle.")
    vectors = ignorant([f"{one} {text}" for text, one in calls], "")
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(vectors[:5], vectors[5:], strict=True)]
    assert scores["cosine_spearman"] == pytest.approx(100 * spearmanr(cosines, [5, 2, 5, 1, 1]).statistic)
    assert scores["cosine_pearson"] == pytest.approx(100 * pearsonr(cosines, [5, 2, 5, 1, 1]).statistic)


def test_ignored_conditions_score_nothing_on_contrasting_pairs(tmp_path):
    (tmp_path / "c.csv").write_text("\n".join(CSV.splitlines()[:5]))
    assert read_csts(tmp_path / "c.csv").evaluate(ignorant)["cosine_spearman"] < 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(",5\n", ",-1\n").replace(",2\n", ",-1\n").replace(",1\n", ",-1\n"), "hides its labels"),
        (lambda text: text.replace(",2\n", ",\n"), r"row 2 has (''|None|nan) in column 'label', not a rating"),
        (lambda text: text.replace(",2\n", ",5\n").replace(",1\n", ",5\n"), "needs pairs of different ratings"),
        (lambda text: text.replace("The kind of vehicle.", ""), "row 2 has no text in column 'condition'"),
    ],
)
def test_ratings_and_conditions_that_are_missing_are_named(tmp_path, change, message):
    path = tmp_path / "c.csv"
    path.write_text(change(CSV))
    with pytest.raises(InputError, match=message):
        read_csts(path)


def test_a_table_without_conditions_is_measured_as_stsb(tmp_path):
    path = tmp_path / "stsb.csv"
    path.write_text("sentence1,sentence2,label\nA cat,A dog,0\nTwo dogs,Two cats,2.5\nA girl,A girl,5\n")
    (task,) = build_tasks(Data(path), ["sts"])
    assert (task.info.name, task.info.citation) == ("STS (stsb.csv)", "Cer et al. 2017")
    assert (task.scores, task.instructions) == ([0, 2.5, 5], ["What happens?"] * 3)
    assert task.evaluate(ignorant)["cosine_spearman"] == pytest.approx(
        spearmanr(task.compute_cosines(ignorant), [0, 2.5, 5])[0] * 100
    )
    path.write_text("sentence1,sentence2,label\nA cat,A dog,0\nTwo dogs,Two cats,6\n")
    with pytest.raises(InputError, match="row 2 has the rating 6 in column 'label', outside 0 to 5"):
        read_csts(path)


def test_a_rating_outside_the_scale_and_a_missing_column_are_named(tmp_path):
    (tmp_path / "c.csv").write_text(CSV.replace(",2\n", ",6\n"))
    with pytest.raises(InputError, match="row 2 has the rating 6 in column 'label', outside 1 to 5"):
        read_csts(tmp_path / "c.csv")
    (tmp_path / "d.csv").write_text(CSV.replace("condition", "respect"))
    with pytest.raises(InputError, match=r"No task is called csts. Available tasks: STS d.csv"):
        build_tasks(Data(tmp_path / "d.csv"), ["csts"])
    (tmp_path / "e.csv").write_text(CSV.replace("label", "score"))
    with pytest.raises(InputError, match="lacks the column label"):
        read_csts(tmp_path / "e.csv")
    with pytest.raises(InputError, match=r"needs two criteria: .* measured as C-STS; this one lacks label"):
        build_tasks(Data(tmp_path / "e.csv"), ["csts"])
    with pytest.raises(InputError, match=r"C-STS \(with a table as --data\)"):
        build_tasks(Data(), ["csts"])


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_c_sts_comes_from_other_tables_too_and_only_its_test_rows_count(tmp_path, kind):
    header, *lines = (line.split(",") for line in CSV.splitlines())
    rows = [dict(zip(header, line, strict=True)) | {"split": "test" if i < 3 else "train"} for i, line in enumerate(lines)]
    write_records(rows, tmp_path / f"c.{kind}")
    task, _ = build_tasks(Data(tmp_path / f"c.{kind}"))
    assert task.scores == [5, 2, 5]
    first, _ = build_tasks(Data(tmp_path / f"c.{kind}", limit=2))
    assert len(first.scores) == 2
    assert first.info.name == f"C-STS (c.{kind}, 2 rows)"


@pytest.mark.parametrize(
    ("condition", "question"),
    [
        ("The colour of the car.", "What is the colour of the car?"),
        ("US presidents", "What is US presidents?"),
        ("number of people", "What is the number of people?"),
        ("Sport.", "What is the sport?"),
        ("a sport", "What is a sport?"),
        ("What has to be done.", "What has to be done?"),
        ("Who sings?", "Who sings?"),
    ],
)
def test_a_condition_becomes_a_question(condition, question):
    assert as_question(condition) == question


def test_a_missing_sentence_is_named():
    rows = [{"sentence1": "a", "instruction": "b?", "score": 1}]
    with pytest.raises(InputError, match="row 1 has no text in column 'sentence2'"):
        ConditionalSTS(INFO, rows)


def test_the_authors_set_comes_from_the_hub_at_its_pinned_revision(monkeypatch):
    as_questions = {}

    def load_dataset(path, config, revision, split):
        as_questions.update(path=path, config=config, revision=revision, split=split)
        return [{"sentence1": "a", "sentence2": "b", "instruction": "c?", "score": score} for score in (0.0, 1.0)]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = load_instruct_stsb("InstructSTSB")
    assert as_questions["path"] == "BrandonZYW/InstructSTSB"
    assert task.info.revision == as_questions["revision"] == "34dda81eca082ba6b3a259899fe9ae435b6ea1ae"


def test_without_the_hub_the_error_says_what_to_do(monkeypatch):
    def load_dataset(*_args, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError, match=r"Cannot read BrandonZYW/InstructSTSB .*no route.*leave --hub out"):
        load_instruct_stsb("InstructSTSB")
