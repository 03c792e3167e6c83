import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.distributed.job import Machines, _describe_options, embed_job, summarize_job
from inbedder.distributed.job_folder import scan_source
from inbedder.errors import InputError, MissingExtraError, ModelError, TextCutWarning
from inbedder.models.install import find_installed_folder, get_base_name
from tests.conftest import assert_close

QUESTION = "What animals do they love?"


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def source_file(tmp_path):
    """A file of 600 rows with ids."""
    return write_jsonl(tmp_path / "rows.jsonl", [{"key": f"k{i}", "text": f"I love {i} cats and dogs"} for i in range(600)])


def list_parts(folder):
    return sorted(folder.glob("part-*.parquet"))


def read_parts(folder):
    from pyarrow import parquet

    return [row for path in list_parts(folder) for row in parquet.read_table(path).to_pylist()]


def wait_for_parts(folder, count):
    deadline = time.monotonic() + 120
    while len(list_parts(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_job_does_not_write_into_its_input(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.txt").write_text("cats\n")
    (tmp_path / "link").symlink_to("rows")
    for output in ("rows", "link"):
        with pytest.raises(InputError, match="is the input itself"):
            embed_job(tmp_path / "rows", tmp_path / output)
    assert os.listdir(tmp_path / "rows") == ["a.txt"]


def test_without_ray_the_error_gives_the_install_command(tmp_path, monkeypatch, capsys):
    from inbedder import cli

    (tmp_path / "a.txt").write_text("cats\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[ray\]' in the clone"):
        embed_job(tmp_path / "a.txt", tmp_path / "out")
    arguments = ["inbedder", "embed", str(tmp_path / "a.txt"), "--engine", "ray", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert "pip install '.[ray]' in the clone" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2"], "--workers: it needs --engine ray"),
        (["--id-column", "x"], "--id-column: it needs --engine ray"),
        (["--engine", "spark"], "choose local or ray"),
        (["--engine", "ray", "-o", "v.npy"], "give a folder"),
        (["--engine", "ray", "-o", "no/folder"], "its folder does not exist"),
        (["--engine", "ray", "-o", "out", "--guided", "50"], "leave it out"),
    ],
)
def test_options_that_do_not_fit_together_are_a_usage_error(tmp_path, monkeypatch, capsys, arguments, message):
    from inbedder import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("cats\n")
    monkeypatch.setattr(sys, "argv", ["inbedder", "embed", "a.txt", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


class TestWithRayInstalled:
    """Ray is imported but never started."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("ray.data")

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"model": "no/such-model"}, ModelError, "Cannot load the model 'no/such-model'"),
            ({"poling": "avg-gen"}, InputError, "There is no option 'poling'"),
            ({"machines": Machines(workers=0)}, InputError, "must be at least 1"),
            ({"text_column": "txt"}, InputError, "No column 'txt'"),
        ],
    )
    def test_an_error_before_ray_starts_leaves_no_folder(self, tmp_path, make_model, options, error, message):
        source = write_jsonl(tmp_path / "a.jsonl", [{"text": "cats"}])
        with pytest.raises(error, match=message):
            embed_job(source, tmp_path / "out", **{"model": make_model("bert"), **options})
        assert not (tmp_path / "out").exists()

    def test_the_reader_omits_done_rows_and_says_why_others_fail(self, tmp_path):
        from inbedder.distributed.job_parts import to_key
        from inbedder.distributed.pipeline import read_file

        path = tmp_path / "a.jsonl"
        path.write_text('{"key": "a", "text": "cats"}\n{bad\n{"key": "b", "text": 5}\n{"key": "c", "text": "\\ud800!"}\n')
        source = scan_source(str(path), "text", "key")
        (table,) = read_file(source, source.files[0], np.array([to_key("a")]))
        rows = table.to_pylist()
        assert [(row["row"], row["id"], row["text"]) for row in rows] == [(2, None, None), (3, "b", None), (4, "c", "\ufffd!")]
        assert rows[0]["reason"].startswith("not JSON")
        assert rows[1]["reason"] == "column 'text' is 5, not text."

    def test_a_row_that_fails_does_not_affect_others(self, make_model, tmp_path):
        import pyarrow

        from inbedder.distributed.pipeline import Embedder

        worker = Embedder(tmp_path, {"model": make_model("bert"), "dtype": "float32"}, {"instruction": QUESTION}, 1)
        encode = worker.model.encode
        texts = [f"{i} cats" for i in range(9)]

        def fail_at_one(batch, **options):
            if texts[4] in batch:
                raise RuntimeError("out of memory")
            return encode(batch, **options)

        worker.model.encode = fail_at_one
        table = pyarrow.table({"row": range(9), "id": range(9), "text": texts, "reason": pyarrow.nulls(9, pyarrow.string())})
        rows = worker(table).to_pylist()
        assert [row["reason"] for row in rows] == [None] * 4 + ["RuntimeError: out of memory"] + [None] * 4
        embedded = [row for row in rows if row["reason"] is None]
        assert_close([row["embedding"] for row in embedded], encode([row["text"] for row in embedded], QUESTION))

    @pytest.mark.parametrize(("precision", "dtype"), [("int8", "int8"), ("ubinary", "uint8")])
    def test_a_worker_keeps_the_precision(self, make_model, tmp_path, precision, dtype):
        import pyarrow

        from inbedder.distributed.pipeline import Embedder

        worker = Embedder(tmp_path, {"model": make_model("bert"), "precision": precision}, {"instruction": QUESTION}, 1)
        rows = {"row": [1, 2], "id": [1, 2], "text": ["I love cats", None], "reason": [None, "it is empty"]}
        column = worker(pyarrow.table(rows))["embedding"]
        assert str(column.type) == f"list<item: {dtype}>"
        assert column.to_pylist() == [worker.model.encode("I love cats", QUESTION, precision=precision).tolist(), None]


@pytest.mark.slow
class TestWithRay:
    """Ray starts once and runs real workers."""

    @pytest.fixture(scope="class", autouse=True)
    def ray_is_up(self):
        pytest.importorskip("ray.data")
        from inbedder.distributed.job import connect_ray

        with connect_ray(Machines(workers=2)):
            yield

    @pytest.fixture
    def job(self, source_file, tmp_path, make_model):
        def run(**options):
            defaults = {"model": make_model("bert"), "dtype": "float32", "machines": Machines(2, threads=1), "shard_rows": 50}
            return embed_job(
                options.pop("source", source_file), tmp_path / "out", QUESTION, id_column="key", **{**defaults, **options}
            )

        run.folder = tmp_path / "out"
        return run

    def test_parts_equal_encode_and_a_rerun_computes_missing_rows(self, tmp_path, job, make_model):
        rows = [{"key": i, "text": f"I love {i} cats " * (1 + i % 90)} for i in range(200)]
        rows[7]["text"], rows[9]["text"] = None, 5
        source = write_jsonl(tmp_path / "a.jsonl", rows)
        with pytest.warns(TextCutWarning, match="texts were cut"):
            first = job(source=source)
        assert (first.rows, first.embedded, first.computed, first.failed) == (200, 198, 198, 2)
        assert "198 of 200 rows embedded, 198 of them now; 2 rows failed" in summarize_job(first)
        failures = [json.loads(line) for line in (job.folder / "_failed.jsonl").open()]
        assert [(failure["id"], failure["row"]) for failure in failures] == [(7, 8), (9, 10)]
        embedded = sorted(read_parts(job.folder), key=lambda row: row["id"])
        assert [row["id"] for row in embedded] == [i for i in range(200) if i not in (7, 9)]
        with pytest.warns(TextCutWarning):
            expected = InBedder(make_model("bert"), dtype="float32").encode([row["text"] for row in embedded], QUESTION)
        assert_close([row["embedding"] for row in embedded], expected)
        list_parts(job.folder)[1].unlink()
        with pytest.warns(TextCutWarning):
            second = job(source=source)
        assert (second.embedded, second.computed) == (198, 50)
        with pytest.raises(InputError, match="belongs to another job: its max_length"):
            job(source=source, max_length=64)

    @pytest.mark.skipif(find_installed_folder(get_base_name("small")) is None, reason="needs: inbedder models install small")
    def test_the_bundled_decoder_gives_the_vectors_of_one_process(self, tmp_path, job):
        texts = ["I love cats", "The train was late again", "🐈 " * 40, "Great soup, rude waiter"]
        source = write_jsonl(tmp_path / "few.jsonl", [{"key": i, "text": text} for i, text in enumerate(texts)])
        result = job(source=source, model="small", machines=Machines(1, threads=2), shard_rows=2)
        assert (result.embedded, len(list_parts(job.folder))) == (4, 2)
        rows = sorted(read_parts(job.folder), key=lambda row: row["id"])
        assert_close([row["embedding"] for row in rows], InBedder("small", dtype="float32").encode(texts, QUESTION), 1e-4)

    def test_a_workers_model_error_is_raised_as_a_model_error(self, job):
        with pytest.raises(ModelError, match="There is no layer 99"):
            job(layer=99)

    def test_a_killed_worker_loses_nothing_and_a_finished_job_is_not_rerun(self, job, monkeypatch):
        killed = []

        def kill():
            wait_for_parts(job.folder, 1)
            killed.extend(list_workers(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        result = job(batch_size=1)
        killer.join()
        assert killed
        assert (result.embedded, result.computed, result.failed) == (600, 600, 0)
        assert sorted(row["id"] for row in read_parts(job.folder)) == sorted(f"k{i}" for i in range(600))
        monkeypatch.setattr("inbedder.distributed.pipeline.run_pipeline", None)  # a finished job starts no worker
        assert (job(batch_size=1).embedded, job(batch_size=1).computed) == (600, 0)

    def test_after_a_kill_of_the_driver_the_next_run_computes_missing_rows(self, job, source_file, make_model):
        options = ["--engine", "ray", "--workers", "2", "--threads", "1", "--id-column", "key", "--text-column", "text"]
        options += ["--batch-size", "1", "--dtype", "float32", "--model", make_model("bert"), "-o", str(job.folder)]
        driver = subprocess.Popen([sys.executable, "-m", "inbedder", "embed", str(source_file), "-i", QUESTION, *options])
        wait_for_parts(job.folder, 2)
        driver.kill()
        driver.wait()
        done_rows = len(read_parts(job.folder))
        result = job(batch_size=1)
        assert 0 < done_rows < 600
        assert 0 < result.computed <= 600 - done_rows
        assert sorted(row["id"] for row in read_parts(job.folder)) == sorted(f"k{i}" for i in range(600))


def list_workers(driver):
    """List the process ids of actors that hold a model, below a driver process."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                names[int(folder.name)] = (folder / "cmdline").read_bytes()
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue

    def is_below_driver(process):
        while process in parents and process != driver:
            process = parents[process]
        return process == driver

    return sorted(
        pid for pid, name in names.items() if b"Embedder" in name and name.startswith(b"ray::") and is_below_driver(pid)
    )


def test_the_cache_and_the_device_do_not_change_the_job(make_model):
    plain = _describe_options(make_model("opt"), {})
    assert _describe_options(make_model("opt"), {"cache": "kept", "cache_size": "5G", "device": "cpu"}) == plain
    assert _describe_options(make_model("opt"), {"layer": 1}) != plain
