import json

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder_evaluation.item_results import (
    Outcomes,
    compute_interval,
    compute_success_rates,
    find_items_file,
    load_outcomes,
    number_names,
    resample_units,
    save_outcomes,
)
from inbedder_evaluation.metrics import spearman
from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb
from inbedder_evaluation.tasks.corpus import make_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.intent_emotion import load_intent_emotion
from inbedder_evaluation.tasks.prompt_retrieval import PromptRetrieval
from inbedder_evaluation.tasks.standard import load_standard_task
from inbedder_evaluation.tasks.text_evaluation import TextEvaluation
from tests.evaluation.tasks.test_standard import PAIRS
from tests.evaluation.tasks.test_tasks import QUESTIONS, ROWS, ignorant
from tests.evaluation.tasks.test_text_evaluation import write

KEY = ("toy", "1", "task", "2", "raw", 0)
CORRELATED = Outcomes({}, "spearman", [0, 0, 1, 2], {"cosine": [0.5, 0.1, 0.9, 0.3], "rating": [3.0, 1.0, 5.0, 2.0]})


def all_tasks(folder):
    write(folder / "stsb" / "test.jsonl.gz", PAIRS)
    write(folder / "mrpc" / "test.jsonl.gz", [{**pair, "label": i % 2} for i, pair in enumerate(PAIRS)])
    yield load_standard_task("sts", "stsb", folder)
    yield load_standard_task("pairs", "mrpc", folder)
    outputs = [{"seg_id": str(i // 2), "set_id": 0, "hyp": f"text {i}", "human_score": i % 4} for i in range(8)]
    write(folder / "texteval_mscoco" / "human_scores.jsonl.gz", outputs)
    references = [{"seg_id": str(i), "set_id": 0, "refs": [f"reference {i}"]} for i in range(4)]
    write(folder / "texteval_mscoco" / "references.jsonl.gz", references)
    yield TextEvaluation("texteval_mscoco", folder)
    for split in ("train", "eval"):
        rows = [{"question": f"{split} {i}", "sql_template": f"select {'ab'[i % 2]}"} for i in range(6)]
        write(folder / "geoquery" / f"{split}.jsonl.gz", rows)
    yield PromptRetrieval(folder, k=2)
    yield CriteriaClustering(make_corpus("toy", ROWS, QUESTIONS))
    yield load_intent_emotion()
    yield load_instruct_stsb()


def test_the_main_score_of_every_task_follows_from_its_items(tmp_path):
    for task in all_tasks(tmp_path):
        outcomes = task.evaluate_items(ignorant, 0)
        assert outcomes.scores == task.evaluate(ignorant, 0)
        every = np.arange(len(outcomes.units))
        assert all(len(values) == len(every) for values in outcomes.columns.values())
        assert outcomes.main_score(every) == pytest.approx(outcomes.scores[task.info.main_score], abs=1e-6), task.info.name
        assert 1 < len(set(outcomes.units)) <= len(every)


def test_a_clustering_of_mteb_keeps_no_items(tmp_path):
    rows = [{"text": f"{label} {i}", "label": label} for label in "abc" for i in range(10)]
    write(tmp_path / "banking77" / "test.jsonl.gz", rows)
    outcomes = load_standard_task("clustering", "banking77", tmp_path).evaluate_items(ignorant)
    assert outcomes.statistic == "" and outcomes.scores["v_measure"] > 0
    assert compute_interval(outcomes) is None


def test_rows_of_one_pair_are_one_unit():
    pairs = [(row["sentence1"], row["sentence2"]) for row in load_instruct_stsb().rows]
    units = load_instruct_stsb().evaluate_items(ignorant).units
    assert (units[0] == units[1]) is (pairs[0] == pairs[1]) is True
    assert len(set(units)) == len(set(pairs)) < len(pairs)


def test_a_draw_takes_units_whole():
    samples = []

    def statistic(items):
        samples.append(items)
        return float(len(items))

    resample_units([0, 0, 0, 1, 1, 2], statistic)
    counts = np.stack([np.bincount(items, minlength=6) for items in samples])
    assert (counts[:, 0] == counts[:, 1]).all() and (counts[:, 1] == counts[:, 2]).all() and (counts[:, 3] == counts[:, 4]).all()
    assert (counts[:, [0, 3, 5]].sum(1) == 3).all()


def test_the_interval_of_a_success_rate_is_the_binomials():
    won = np.random.default_rng(0).random(400) < 0.7
    low, high = compute_interval(compute_success_rates({"kind": won}, {"kind": list(range(400))}))
    deviation = 100 * np.sqrt(won.mean() * (1 - won.mean()) / 400)
    assert low == pytest.approx(100 * won.mean() - 1.96 * deviation, abs=0.8)
    assert high == pytest.approx(100 * won.mean() + 1.96 * deviation, abs=0.8)


def test_the_interval_is_reproducible_and_wider_for_dependent_items():
    won = np.random.default_rng(1).random(100) < 0.5
    independent = compute_success_rates({"kind": won}, {"kind": list(range(100))})
    repeated = compute_success_rates({"kind": np.repeat(won, 4)}, {"kind": np.repeat(np.arange(100), 4).tolist()})
    as_if_apart = compute_success_rates({"kind": np.repeat(won, 4)}, {"kind": list(range(400))})
    assert compute_interval(independent) == compute_interval(independent) == compute_interval(repeated)
    assert np.ptp(compute_interval(as_if_apart)) < 0.7 * np.ptp(compute_interval(independent))


def test_one_unit_has_no_interval():
    assert compute_interval(Outcomes({}, "mean", [0, 0], {"score": [1.0, 2.0]})) is None
    assert compute_interval(Outcomes({}, "mean", [], {"score": []})) is None


def test_a_criterion_that_a_draw_leaves_out_gives_no_interval():
    wins = {"kind": np.array([True, False]), "mood": np.array([True])}
    assert compute_interval(compute_success_rates(wins, {"kind": ["a", "b"], "mood": ["a"]})) is None


def test_items_come_back_as_they_were_kept(tmp_path):
    assert load_outcomes(tmp_path / "r.items", KEY) is None
    save_outcomes(tmp_path / "r.items", KEY, CORRELATED)
    back = load_outcomes(tmp_path / "r.items", KEY)
    assert (back.statistic, back.units, back.columns) == ("spearman", [0, 0, 1, 2], CORRELATED.columns)
    assert back.main_score(np.arange(4)) == spearman(CORRELATED.columns["cosine"], CORRELATED.columns["rating"])
    assert json.loads(find_items_file(tmp_path / "r.items", KEY).read_text())["task"] == "task"
    assert find_items_file(tmp_path, KEY) != find_items_file(tmp_path, (*KEY[:5], 1))


def test_damaged_items_are_named(tmp_path):
    find_items_file(tmp_path, KEY).write_text("{")
    with pytest.raises(InputError, match=r"\.json is damaged .* Remove it and measure again"):
        load_outcomes(tmp_path, KEY)


def test_names_are_numbered_by_their_first_appearance():
    assert number_names(["b", "a", "b", ("c", "d")]) == [0, 1, 0, 2]
