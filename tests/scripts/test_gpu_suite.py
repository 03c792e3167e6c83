"""The GPU suite runs its stages without a GPU, and a stage that fails loses nothing of the others."""

import importlib
import json
import sys
import zipfile

import numpy as np


def load(module="suite"):
    return importlib.import_module(f"scripts.bench.gpu.{module}")


def run_tiny(stage):
    content = {}
    load(stage).measure_stage("cpu", True, content.__setitem__)
    return json.loads(json.dumps(content))


def test_the_environment_is_described():
    content = run_tiny("environment")
    assert content["card"] == "cpu" and content["versions"]["torch"]
    assert set(content["TFLOP/s of a product of 64 x 64 matrices"]) == {"float32", "bfloat16", "float16"}


def test_every_way_to_1st_gen_gives_the_same_vectors():
    content = run_tiny("shapes")
    assert content["vLLM"].startswith(("installed", "not measured"))
    ways = {name: way for name, way in content["tiny"].items() if isinstance(way, dict)}
    assert len(ways) == 7 and all(way["texts per second"] > 0 for way in ways.values())
    assert min(way.get("smallest cosine to the first row", 1) for way in ways.values()) > 0.999


def test_mini_is_measured_beside_its_base():
    content = run_tiny("mini")
    assert set(content["cpu, float32"]) == set(content["smallest cosine to the CPU's float32"]["cpu, float32"])
    assert content["cpu, float32"]["mini"]["times as fast as sentence-transformers"] > 0


def test_adapters_are_trained_on_quantized_and_on_whole_weights(monkeypatch):
    training = importlib.import_module("inbedder_finetune.answering.train_answering")
    monkeypatch.setattr(training, "AnsweringTrainer", training.AnsweringTrainer)  # the stage replaces it
    content = run_tiny("finetune")
    for method in ("QLoRA, nf4", "LoRA, bfloat16 autocast"):
        assert content[method]["steps"] == 2 and np.isfinite(content[method]["losses"]).all()


def test_stages_that_fail_or_take_too_long_keep_what_they_measured(tmp_path):
    output, log = tmp_path / "stage.json", tmp_path / "log"
    begin = f"import pathlib, time; pathlib.Path({str(output)!r}).write_text('{{\"speed\": 3}}'); "
    run_stage = load().run_stage
    results = [
        run_stage([sys.executable, "-c", begin + ending], output, log, 2)
        for ending in ("print('fine')", "raise ValueError('no memory')", "time.sleep(60)")
    ]
    assert [(each["state"], each["speed"]) for each in results] == [("done", 3), ("failed", 3), ("timed out", 3)]
    assert [each.get("error") for each in results] == [None, "ValueError: no memory", "over 2 seconds"]


def test_all_stages_together_take_nine_minutes_at_most(tmp_path, monkeypatch):
    suite, seconds = load(), []

    def run_stage(_command, _output, _log, limit):
        seconds.append(limit)
        return {"state": "done", "card": "NVIDIA H100"}

    monkeypatch.setattr(suite, "run_stage", run_stage)
    monkeypatch.setattr(suite, "STARTED", suite.time.monotonic() - 500)
    path = suite.run(tmp_path, suite.Choices(), suite.LIMITS)
    assert path.name == "gpu-nvidia-h100.json" and list(json.loads(path.read_text())["stages"]) == list(suite.LIMITS)
    assert max(seconds) <= 40


def test_a_shrunk_wheel_keeps_one_library_and_is_unpacked(tmp_path):
    wheels = load("wheels")
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "nowhere_installed-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("code.py", "libcuda118.so", "libcuda130.so"):
            archive.writestr(f"nowhere_installed/{name}", "")
    wheels.shrink_wheel(wheel, "libcuda130.so")
    site = wheels.unpack_wheels(tmp_path, tmp_path / "site")
    assert {path.name for path in (site / "nowhere_installed").iterdir()} == {"code.py", "libcuda130.so"}
    assert wheels.unpack_wheels(tmp_path / "wheels", tmp_path / "site") is None


def test_the_carried_base_is_the_published_one_up_to_rounding(tmp_path, monkeypatch):
    base, published = load("base"), importlib.import_module("inbedder.models.bundled").find_base_folder()
    base.pack_base(published, tmp_path / "base")
    assert sum(path.stat().st_size for path in (tmp_path / "base").rglob("*") if path.is_file()) < 14e6
    monkeypatch.setattr(base, "find_installed_base", lambda: None)
    restored, description = base.find_base(tmp_path, tmp_path / "restored")
    assert "one byte" in description
    from inbedder import InBedder

    texts = base.sample_texts(4)
    exact, rounded = (InBedder(str(folder), backbone="embedding").encode(texts) for folder in (published, restored))
    cosines = (exact * rounded).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)
    assert cosines.min() > 0.99
