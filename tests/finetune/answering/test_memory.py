import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.memory import MemoryEstimate, choose_micro_batch
from inbedder_finetune.answering.plan import resolve_plan

ROOT = Path(__file__).parents[3]


def measure(*settings, **environment):
    command = [sys.executable, str(Path(__file__).with_name("peak.py")), *settings, "float32"]
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment).stdout
    return [float(one) for one in output.split()[-3:]]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("shape", "weights"), [("wide", "lora"), ("deep", "lora"), ("deep", "whole"), ("wide", "whole")])
def test_the_live_tensors_of_a_step_are_counted(shape, weights, attention):
    live, _, peak = measure(shape, weights, attention, MALLOC_MMAP_THRESHOLD_="65536")  # malloc returns freed blocks
    assert peak / 1.3 < live < peak * 1.3


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_the_estimate_is_near_the_peak_of_a_process(shape):
    _, estimated, peak = measure(shape, "lora", "eager")
    assert peak / 1.3 < estimated < peak * 1.3


def examples(count, length):
    ids = np.arange(length)
    return [
        {"input_ids": ids, "labels": np.where(ids < length - 2, IGNORE_INDEX, ids), "text": number} for number in range(count)
    ]


def plan(**training):
    return resolve_plan(parse_recipe({"model": "m", "data": {"sources": ["a"]}, "training": {"batch_size": 8, **training}}))


@pytest.mark.parametrize(("free", "expected"), [(100.0, 8), (9.0, 4), (6.0, 2), (0.5, 1)])
def test_the_largest_micro_batch_that_fits_is_chosen(monkeypatch, caplog, free, expected):
    monkeypatch.setattr("inbedder_finetune.answering.memory.get_free_memory", lambda: free)
    estimate = MemoryEstimate(2**30, 0.0, (0.0, 2**30 / 10, 0.0, 0.0))  # a GiB, and one for each row of ten positions
    caplog.set_level("INFO", "inbedder_finetune")
    assert choose_micro_batch(plan(), estimate, Collator(0), examples(20, 10), [10] * 20) == expected
    assert f"training.micro_batch={expected} (chosen automatically)" in caplog.text
    assert ("Try a smaller training.micro_batch" in caplog.text) == (free < 1)


def test_a_micro_batch_in_the_recipe_is_kept(monkeypatch):
    monkeypatch.setattr("inbedder_finetune.answering.memory.get_free_memory", lambda: 0.5)
    estimate = MemoryEstimate(2**30, 0.0, (0.0, 0.0, 0.0, 0.0))
    assert choose_micro_batch(plan(micro_batch=4), estimate, Collator(0), examples(8, 10), [10] * 8) == 4
