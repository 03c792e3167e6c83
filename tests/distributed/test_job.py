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
from inbedder.distributed.job import Machines, _settings_of, embed_job, summary_of
from inbedder.distributed.job_folder import survey
from inbedder.errors import InputError, MissingExtraError, ModelError, TextCutWarning
from inbedder.models.install import base_of, installed_folder
from tests.conftest import assert_close

ASKED = "What animals do they love?"


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def many(tmp_path):
    """600 rows with ids."""
    return jsonl(tmp_path / "many.jsonl", [{"key": f"k{i}", "text": f"I love {i} cats and dogs"} for i in range(600)])


def parts(folder):
    return sorted(folder.glob("part-*.parquet"))


def rows_of(folder):
    from pyarrow import parquet

    return [row for path in parts(folder) for row in parquet.read_table(path).to_pylist()]


def wait_for_parts(folder, count):
    deadline = time.monotonic() + 120
    while len(parts(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_job_does_not_write_into_its_input(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.txt").write_text("cats\n")
    (tmp_path / "link").symlink_to("rows")
    for output in ("rows", "link"):
        with pytest.raises(InputError, match="is the input itself"):
            embed_job(tmp_path / "rows", tmp_path / output)
    assert os.listdir(tmp_path / "rows") == ["a.txt"]


def test_without_ray_the_error_holds_the_install_line(tmp_path, monkeypatch, capsys):
    from inbedder import cli

    (tmp_path / "a.txt").write_text("cats\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inbedder\[ray\]'"):
        embed_job(tmp_path / "a.txt", tmp_path / "out")
    arguments = ["inbedder", "embed", str(tmp_path / "a.txt"), "--engine", "ray", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert "pip install 'inbedder[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workers", "2"], "--workers is for --engine ray"),
        (["--id-column", "x"], "--id-column is for --engine ray"),
        (["--engine", "spark"], "choose local or ray"),
        (["--engine", "ray", "-o", "v.npy"], "give a folder"),
        (["--engine", "ray", "-o", "no/folder"], "its folder does not exist"),
        (["--engine", "ray", "-o", "out", "--guided", "50"], "leave it out"),
    ],
)
def test_options_that_do_not_fit_together_are_a_usage_error(tmp_path, monkeypatch, capsys, arguments, says):
    from inbedder import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("cats\n")
    monkeypatch.setattr(sys, "argv", ["inbedder", "embed", "a.txt", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert says in " ".join(capsys.readouterr().err.replace("│", " ").split())


class TestWithRayInstalled:
    """No Ray runs here, its pieces alone."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("ray.data")

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"model": "no/such-model"}, ModelError, "Cannot load the model 'no/such-model'"),
            ({"poling": "avg-gen"}, InputError, "There is no option 'poling'"),
            ({"machines": Machines(workers=0)}, InputError, "must be at least 1"),
            ({"text_column": "txt"}, InputError, "No column 'txt'"),
        ],
    )
    def test_a_mistake_is_found_before_ray_starts_and_leaves_no_folder(self, tmp_path, make_model, options, error, says):
        source = jsonl(tmp_path / "a.jsonl", [{"text": "cats"}])
        with pytest.raises(error, match=says):
            embed_job(source, tmp_path / "out", **{"model": make_model("bert"), **options})
        assert not (tmp_path / "out").exists()

    def test_the_reader_leaves_out_what_is_done_and_names_what_is_wrong(self, tmp_path):
        from inbedder.distributed.job_folder import id_key
        from inbedder.distributed.pipeline import read_file

        path = tmp_path / "a.jsonl"
        path.write_text('{"key": "a", "text": "cats"}\n{bad\n{"key": "b", "text": 5}\n{"key": "c", "text": "\\ud800!"}\n')
        source = survey(str(path), "text", "key")
        (table,) = read_file(source, source.files[0], np.array([id_key("a")]))
        rows = table.to_pylist()
        assert [(row["row"], row["id"], row["text"]) for row in rows] == [(2, None, None), (3, "b", None), (4, "c", "\ufffd!")]
        assert rows[0]["reason"].startswith("not JSON")
        assert rows[1]["reason"] == "column 'text' is 5, not text."

    def test_a_row_that_the_model_fails_on_does_not_take_others_with_it(self, make_model, tmp_path):
        import pyarrow

        from inbedder.distributed.pipeline import Embedder

        worker = Embedder(tmp_path, {"model": make_model("bert"), "dtype": "float32"}, {"instruction": ASKED}, 1)
        plain = worker.model.encode
        texts = [f"{i} cats" for i in range(9)]

        def fails(some, **options):
            if texts[4] in some:
                raise RuntimeError("out of memory")
            return plain(some, **options)

        worker.model.encode = fails
        table = pyarrow.table({"row": range(9), "id": range(9), "text": texts, "reason": pyarrow.nulls(9, pyarrow.string())})
        found = worker(table).to_pylist()
        assert [row["reason"] for row in found] == [None] * 4 + ["RuntimeError: out of memory"] + [None] * 4
        good = [row for row in found if row["reason"] is None]
        assert_close([row["embedding"] for row in good], plain([row["text"] for row in good], ASKED))


@pytest.mark.slow
class TestWithRay:
    """Real workers; Ray is started once."""

    @pytest.fixture(scope="class", autouse=True)
    def ray_is_up(self):
        pytest.importorskip("ray.data")
        from inbedder.distributed.job import _ray_session

        with _ray_session(Machines(workers=2)):
            yield

    @pytest.fixture
    def job(self, many, tmp_path, make_model):
        def run(**options):
            given = {"model": make_model("bert"), "dtype": "float32", "machines": Machines(2, threads=1), "shard_rows": 50}
            return embed_job(options.pop("source", many), tmp_path / "out", ASKED, id_column="key", **{**given, **options})

        run.folder = tmp_path / "out"
        return run

    def test_parts_are_whole_and_equal_to_encode_and_a_rerun_computes_what_is_missing(self, tmp_path, job, make_model):
        rows = [{"key": i, "text": f"I love {i} cats " * (1 + i % 90)} for i in range(200)]
        rows[7]["text"], rows[9]["text"] = None, 5
        source = jsonl(tmp_path / "a.jsonl", rows)
        with pytest.warns(TextCutWarning, match="texts were cut"):
            first = job(source=source)
        assert (first.rows, first.embedded, first.computed, first.failed) == (200, 198, 198, 2)
        assert "198 of 200 rows embedded, 198 of them now; 2 rows failed" in summary_of(first)
        failed = [json.loads(line) for line in (job.folder / "_failed.jsonl").open()]
        assert [(one["id"], one["row"]) for one in failed] == [(7, 8), (9, 10)]
        found = sorted(rows_of(job.folder), key=lambda row: row["id"])
        assert [row["id"] for row in found] == [i for i in range(200) if i not in (7, 9)]
        with pytest.warns(TextCutWarning):
            plain = InBedder(make_model("bert"), dtype="float32").encode([row["text"] for row in found], ASKED)
        assert_close([row["embedding"] for row in found], plain)
        parts(job.folder)[1].unlink()
        with pytest.warns(TextCutWarning):
            again = job(source=source)
        assert (again.embedded, again.computed) == (198, 50)
        with pytest.raises(InputError, match="belongs to another job: its max_length"):
            job(source=source, max_length=64)

    @pytest.mark.skipif(installed_folder(base_of("small")) is None, reason="needs: inbedder models install small")
    def test_the_bundled_decoder_reads_as_in_one_process(self, tmp_path, job):
        texts = ["I love cats", "The train was late again", "🐈 " * 40, "Great soup, rude waiter"]
        source = jsonl(tmp_path / "few.jsonl", [{"key": i, "text": text} for i, text in enumerate(texts)])
        done = job(source=source, model="small", machines=Machines(1, threads=2), shard_rows=2)
        assert (done.embedded, len(parts(job.folder))) == (4, 2)
        found = sorted(rows_of(job.folder), key=lambda row: row["id"])
        assert_close([row["embedding"] for row in found], InBedder("small", dtype="float32").encode(texts, ASKED), 1e-4)

    def test_a_model_that_cannot_be_used_is_told_in_our_words(self, job):
        with pytest.raises(ModelError, match="No layer 99"):
            job(layer=99)

    def test_a_worker_killed_in_the_middle_loses_nothing_and_the_finished_job_is_not_run_again(self, job, monkeypatch):
        killed = []

        def kill():
            wait_for_parts(job.folder, 1)
            killed.extend(workers_below(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        result = job(batch_size=1)
        killer.join()
        assert killed
        assert (result.embedded, result.computed, result.failed) == (600, 600, 0)
        assert sorted(row["id"] for row in rows_of(job.folder)) == sorted(f"k{i}" for i in range(600))
        monkeypatch.setattr("inbedder.distributed.pipeline.run_pipeline", None)  # a finished job asks for no worker
        assert (job(batch_size=1).embedded, job(batch_size=1).computed) == (600, 0)

    def test_after_a_kill_of_the_driver_the_next_run_computes_what_is_missing(self, job, many, make_model):
        options = ["--engine", "ray", "--workers", "2", "--threads", "1", "--id-column", "key", "--text-column", "text"]
        options += ["--batch-size", "1", "--dtype", "float32", "--model", make_model("bert"), "-o", str(job.folder)]
        driver = subprocess.Popen([sys.executable, "-m", "inbedder", "embed", str(many), "-i", ASKED, *options])
        wait_for_parts(job.folder, 2)
        driver.kill()
        driver.wait()
        done = len(rows_of(job.folder))
        result = job(batch_size=1)
        assert 0 < done < 600
        assert 0 < result.computed <= 600 - done
        assert sorted(row["id"] for row in rows_of(job.folder)) == sorted(f"k{i}" for i in range(600))


def workers_below(driver):
    """Process ids of actors that hold a model, of the Ray that a process started."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                names[int(folder.name)] = (folder / "cmdline").read_bytes()
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue

    def ours(process):
        while process in parents and process != driver:
            process = parents[process]
        return process == driver

    return sorted(one for one, name in names.items() if b"Embedder" in name and name.startswith(b"ray::") and ours(one))


def test_where_vectors_are_kept_is_no_part_of_what_a_job_is(make_model):
    plain = _settings_of(make_model("opt"), {})
    assert _settings_of(make_model("opt"), {"cache": "kept", "cache_size": "5G", "device": "cpu"}) == plain
    assert _settings_of(make_model("opt"), {"layer": 1}) != plain
