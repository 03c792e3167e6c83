import json

import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder.cli import app as cli
from inbedder.errors import InputError
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.paired_bootstrap import compare, find_model, make_comparison_table
from inbedder_evaluation.results import load_cells, make_table
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, load_instruct_stsb
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets
from inbedder_evaluation.tasks.corpus import make_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.robustness import InstructionRobustness
from tests.evaluation.tasks.test_robustness import ASKED, DATA
from tests.evaluation.tasks.test_tasks import QUESTIONS, ROWS, ignorant, one_hot
from tests.evaluation.test_runner import Counting


def oracle(texts, instruction):
    return one_hot([text.split()[0 if instruction == "Kind?" else 1] for text in texts])


def model(name, encode):
    return Embedder(name, "1", encode, lambda text, instruction: f"{instruction} {text}", instructed=True)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus("toy", ROWS, QUESTIONS)


@pytest.fixture(scope="module")
def measured(corpus, tmp_path_factory):
    """An oracle and an ignorant model on triplets and clusters of one corpus."""
    tmp_path = tmp_path_factory.mktemp("measured")
    tasks, items = [ContrastTriplets(corpus, count=200), CriteriaClustering(corpus)], tmp_path / "r.items"
    return run([model("oracle", oracle), model("dull", ignorant)], tasks, tmp_path / "r.json", range(2), items=items), items


def test_a_better_model_is_better_beyond_the_choice_of_items(measured):
    comparisons = compare(measured[0], "oracle", "dull", measured[1])
    assert [(row.task, row.vectors) for row in comparisons] == [
        (task, kind) for task in ("toy triplets", "toy two-criteria clustering") for kind in ("raw", "centred")
    ]
    for row in comparisons:
        assert row.difference == pytest.approx(row.first - row.second, abs=0.011)
        assert row.interval[0] > 20 and row.p == 0.002


def test_comparing_the_other_way_round_turns_the_signs(measured):
    one, reverse = compare(measured[0], "oracle", "dull", measured[1])[0], compare(measured[0], "dull", "oracle", measured[1])[0]
    assert reverse.difference == -one.difference and reverse.p == one.p
    assert reverse.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=0.011)


def test_equal_models_do_not_differ(corpus, tmp_path):
    embedders = [model("one", ignorant), model("other", ignorant)]
    cells = run(embedders, [ContrastTriplets(corpus, count=50)], tmp_path / "r.json", [0], items=tmp_path / "items")
    row = compare(cells, "one", "other", tmp_path / "items")[0]
    assert (row.difference, row.interval, row.p) == (0, (0, 0), 1)


def test_models_that_differ_by_chance_are_rarely_told_apart(tmp_path):
    draw = np.random.default_rng(0)
    rows = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "instruction": "Why?", "score": i % 5} for i in range(40)]
    task = ConditionalSTS(load_instruct_stsb().info, rows)
    noise = [lambda texts, _: draw.normal(size=(len(texts), 6)).astype(np.float32) for _ in range(6)]
    embedders = [model(f"m{i}", encode) for i, encode in enumerate(noise)]
    cells = run(embedders, [task], tmp_path / "r.json", items=tmp_path / "items")
    comparisons = [compare(cells, f"m{i}", f"m{i + 1}", tmp_path / "items")[0] for i in range(0, 6, 2)]
    assert sum(row.p < 0.05 for row in comparisons) <= 1
    assert all((row.interval[0] <= 0 <= row.interval[1]) or row.p < 0.06 for row in comparisons)


def test_a_task_without_items_is_compared_by_its_scores_alone(tmp_path):
    cells = run([model("a", ignorant), model("b", oracle)], [InstructionRobustness(DATA, ASKED)], tmp_path / "r.json", [0])
    row = compare(cells, "a", "b", tmp_path / "items")[0]
    assert row.interval is None and row.p is None
    assert make_comparison_table([row], "a", "b")[1][-2:] == ["items not saved", ""]


def test_models_are_found_by_what_was_given(measured):
    assert find_model("mini", ["mini, avg-gen", "mini, no instruction"]) == "mini, avg-gen"
    assert find_model("mini", ["mini, avg-gen", "mini"]) == "mini"
    with pytest.raises(InputError, match=r"--compare names 'x', which was not measured. Measured models: a; b"):
        find_model("x", ["a", "b"])
    with pytest.raises(InputError, match="names 'dull' twice"):
        compare(measured[0], "dull", "dull", measured[1])
    with pytest.raises(InputError, match="No task was measured with both 'dull' and 'other'"):
        compare(measured[0], "dull", "other", measured[1])


def test_cells_without_items_are_measured_again_only_when_needed(corpus, tmp_path):
    task, path, items = ContrastTriplets(corpus, count=20), tmp_path / "r.json", tmp_path / "items"
    run([model("toy", Counting())], [task], path)
    encode = Counting()
    run([model("toy", encode)], [task], path, items=items)
    assert encode.calls == 0
    run([model("toy", encode)], [task], path, items=items, need_items=True)
    assert encode.calls == 2
    run([model("toy", encode)], [task], path, items=items, need_items=True)
    assert encode.calls == 2 and len(load_cells(path)) == 2


def test_scores_without_a_seed_carry_an_interval_in_cells_and_tables(measured):
    cells, _ = measured
    triplets = [cell for cell in cells if cell.task == "toy triplets"]
    assert all(cell.interval is None for cell in cells if cell not in triplets)
    low, high = triplets[-1].interval
    assert 0 <= low < triplets[-1].scores["harmonic_mean"] < high <= 100
    assert make_table(cells, "centred")[2][1] == f"{triplets[-1].scores['harmonic_mean']:.1f} [{low:.1f}, {high:.1f}]"
    assert "[" not in make_table(cells, "centred", "kind")[2][1]


def test_the_command_line_measures_and_compares_two_models(make_model, tmp_path):
    folders = [str(make_model("bert")), str(make_model("opt"))]
    command = ["evaluate", "--task", "stsb", "--compare", *folders, "-o", str(tmp_path / "r.json")]
    output = CliRunner().invoke(cli, command, catch_exceptions=False).output
    assert "compared item by item" in output and "95% interval" in output
    content = json.loads((tmp_path / "r.comparison.json").read_text())
    assert [content["first"], content["second"]] == folders
    assert [row["vectors"] for row in content["tasks"]] == ["raw", "centred"]
    assert all(row["interval"][0] <= row["interval"][1] and 0 < row["p"] <= 1 for row in content["tasks"])
    assert len(list((tmp_path / "r.items").iterdir())) == 8
