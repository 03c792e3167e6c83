import pytest

from inbedder_evaluation.mteb.table import average_scores, make_suite_table, make_wording_table, read_published_scores
from inbedder_evaluation.results import Cell


def cell(model, task, score):
    return Cell(model, "r", task, "d", "raw", 0, "score", {"score": score}, "", 0.0)


@pytest.mark.parametrize(
    ("model", "means"),  # the paper's table 2, except 57.5, 83.2 and 67.1 of INSTRUCTOR and GTR-large, which round otherwise
    [
        ("sentence-transformers/gtr-t5-large", [47.4, 55.35, 41.6, 85.3, 67.15, 78.2, 29.5, 58.3]),
        ("hkunlp/instructor-large", [47.6, 57.55, 45.3, 85.9, 73.9, 83.1, 31.8, 61.6]),
        ("sentence-transformers/gtr-t5-xl", [48.0, 56.0, 41.5, 86.1, 67.1, 77.8, 30.2, 58.4]),
        ("hkunlp/instructor-xl", [49.3, 57.3, 44.7, 86.6, 73.2, 83.1, 32.0, 61.8]),
    ],
)
def test_averages_of_the_papers_scores_are_its_table_2(model, means):
    assert list(average_scores(read_published_scores()[model]).values()) == pytest.approx(means, abs=0.051)


def test_a_table_has_sets_and_means_and_the_papers_scores():
    names = ("CQADupstackTexRetrieval", "CQADupstackGisRetrieval", "NQ", "STS12")
    cells = [cell("hkunlp/instructor-large", name, score) for name, score in zip(names, (10, 30, 50, 80), strict=True)]
    rows = make_suite_table([*cells, cell("mini", "STS12", 70)])
    assert rows[0] == ["set", "kind", "hkunlp/instructor-large", "hkunlp/instructor-large (paper)", "mini"]
    assert ["STS12", "STS", "80.0", "76.3", "70.0"] in rows
    assert rows[-3:] == [
        ["mean, 2 sets", "Retrieval", "35.0", "42.4", ""],
        ["mean, 1 sets", "STS", "80.0", "76.3", "70.0"],
        ["mean, 3 sets", "all", "50.0", "53.7", "70.0"],
    ]


def test_wordings_are_compared_on_the_sets_that_they_share():
    cells = [cell("m", "FiQA2018", 60), cell("m", "STS12", 10), cell("m, no instruction", "FiQA2018", 0)]
    assert make_wording_table(cells) == []
    cells += [cell(f"m, paraphrase-{i} wording", "FiQA2018", score) for i, score in enumerate((58.5, 62), 1)]
    assert make_wording_table(cells)[1:] == [["m", "3", "62.0", "58.5", "3.5"]]
