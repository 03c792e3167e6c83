import mteb
import pytest

from inbedder_evaluation.mteb.results import save_as_mteb
from inbedder_evaluation.mteb_adapters import describe
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb
from inbedder_evaluation.tasks.standard import load_standard_task
from tests.evaluation.tasks.test_tasks import ignorant
from tests.evaluation.tasks.test_text_evaluation import write
from tests.evaluation.test_runner import embedder


def test_standard_cells_become_mtebs_results_with_the_mean_over_seeds(tmp_path):
    write(tmp_path / "banking77" / "test.jsonl.gz", [{"text": f"t {i}", "label": "abc"[i % 3]} for i in range(30)])
    tasks = [load_standard_task("clustering", "banking77", tmp_path), load_instruct_stsb()]
    cells = run([embedder(ignorant, "toy, own prompt")], tasks, tmp_path / "r.json", seeds=range(3))
    assert save_as_mteb(cells, tasks, tmp_path / "mteb") == 1
    meta = describe("inbedder/toy-own-prompt", cells[0].model_revision)
    result = mteb.ResultCache(tmp_path / "mteb").load_task_result("banking77 clustering", meta)
    values = [cell.scores["v_measure"] for cell in cells if cell.vectors == "raw" and "v_measure" in cell.scores]
    assert result.scores["test"][0]["main_score"] == pytest.approx(sum(values) / 300, abs=1e-4)


def test_without_standard_tasks_nothing_is_written(tmp_path):
    assert save_as_mteb([], [load_instruct_stsb()], tmp_path / "mteb") == 0
    assert not (tmp_path / "mteb").exists()
