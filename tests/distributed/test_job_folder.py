import json
import os
import subprocess
import sys

import numpy as np
import pytest

from inbedder.distributed.job_folder import (
    check_spec,
    clear_failures,
    gather_failures,
    open_job,
    scan_source,
)
from inbedder.errors import InputError
from inbedder.io.locks import LOCK_FILE


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_row_count_covers_all_files_and_bad_rows(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"text": "one"}, {"text": None}])
    (tmp_path / "b.csv").write_text("text,n\nthree,3\n,4\n")
    (tmp_path / "_notes.csv").write_text("not a table")
    source = scan_source(str(tmp_path))
    assert (source.rows, [file.first for file in source.files], source.text_ids) == (4, [0, 2], False)


def test_the_digest_depends_on_the_content_and_not_on_the_path(tmp_path):
    first, second, third = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    first.write_text("cats\n")
    second.write_text("cats\n")
    third.write_text("dogs\n")
    assert scan_source(str(first)).digest == scan_source(str(second)).digest != scan_source(str(third)).digest


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "a"], "rows 1 and 3 have the same id"),
        (["a", None, "b"], "row 2: the id in column 'id' is None"),
        ([1, 2.5, 3], "row 2: the id in column 'id' is 2.5"),
        ([1, "a", 3], "mixes numbers and texts"),
    ],
)
def test_ids_that_cannot_be_keys_are_refused_before_the_work(tmp_path, ids, message):
    source = write_lines(tmp_path / "a.jsonl", [{"id": row_id, "text": "cats"} for row_id in ids])
    with pytest.raises(InputError, match=message):
        scan_source(source, "text", "id")


def test_an_unknown_id_column_and_standard_input_are_refused(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"text": "cats"}])
    with pytest.raises(InputError, match="No column 'key'"):
        scan_source(source, None, "key")
    with pytest.raises(InputError, match="not standard input"):
        scan_source("-")


def test_the_same_job_resumes_and_another_is_refused(tmp_path):
    folder = tmp_path / "out"
    with open_job(folder, {"instruction": "What?", "inbedder": "1"}):
        pass
    with open_job(folder, {"instruction": "What?", "inbedder": "2"}):
        pass
    with (
        pytest.raises(InputError, match="belongs to another job: its instruction is 'What\\?', not 'Why\\?'"),
        open_job(folder, {"instruction": "Why?"}),
    ):
        pass


def test_a_folder_of_other_files_is_refused_and_left_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no job"), open_job(tmp_path, {}):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match="is a file"), open_job(tmp_path / "thesis.tex", {}):
        pass


KILLED_START = """
import os, pathlib, signal, sys
from inbedder.distributed.job_folder import open_job
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with open_job(pathlib.Path(sys.argv[1]), {"instruction": "What?"}):
    pass
"""


def test_a_job_killed_while_it_is_described_starts_again(tmp_path):
    assert subprocess.run([sys.executable, "-c", KILLED_START, tmp_path], check=False).returncode == -9
    assert os.listdir(tmp_path)
    with open_job(tmp_path, {"instruction": "Why?"}):
        assert sorted(os.listdir(tmp_path)) == [LOCK_FILE, "_job.json"]
    assert os.listdir(tmp_path) == ["_job.json"]


@pytest.mark.parametrize("content", ["[]", "3", "null", '"a"', "[" * 100_000, "{", "\ud800"])
def test_a_damaged_description_is_told_as_such(tmp_path, content):
    (tmp_path / "_job.json").write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(InputError, match=r"_job\.json' is damaged\. Choose another -o"), open_job(tmp_path, {"a": 1}):
        pytest.fail("the job began")


@pytest.mark.parametrize("content", ["[]", "3", "{}", "[" * 100_000, '{"model": 5}'])
def test_a_damaged_spec_is_told_as_such(tmp_path, content):
    (tmp_path / "_spec.json").write_text(content)
    with pytest.raises(InputError, match=r"_spec\.json' is damaged"):
        check_spec(tmp_path, None)


@pytest.mark.parametrize("content", ["3\n", "{}\n", '{"row": "a", "id": 1}\n', "[" * 100_000, '{"row": 1, "id": [1]}\n', "{\n"])
def test_damaged_failures_are_told_as_such(tmp_path, content):
    clear_failures(tmp_path)
    (tmp_path / "_failed" / "part-1.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"part-1\.jsonl' is damaged"):
        gather_failures(tmp_path, np.empty(0, dtype=np.int64))


def test_foreign_files_beside_failures_stay(tmp_path):
    (tmp_path / "_failed").mkdir()
    (tmp_path / "_failed" / "notes.txt").write_text("mine")
    clear_failures(tmp_path)
    assert gather_failures(tmp_path, np.empty(0, dtype=np.int64)) == 0
    assert (tmp_path / "_failed" / "notes.txt").read_text() == "mine"


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    with (
        open_job(tmp_path / "out", {}),
        pytest.raises(InputError, match="Another run is writing"),
        open_job(tmp_path / "out", {}),
    ):
        pass
    with open_job(tmp_path / "out", {}):
        pass


def test_failures_are_gathered_once_and_without_rows_that_have_a_vector(tmp_path):
    clear_failures(tmp_path)
    failed = [{"row": row, "id": row, "reason": "empty"} for row in (1, 2, 3)]
    write_lines(tmp_path / "_failed" / "part-1.jsonl", failed)
    write_lines(tmp_path / "_failed" / "part-2.jsonl", [failed[0], {"row": 9, "id": None, "reason": "not JSON"}])
    assert gather_failures(tmp_path, np.array([2])) == 3
    assert [json.loads(line)["row"] for line in (tmp_path / "_failed.jsonl").open()] == [1, 3, 9]
    clear_failures(tmp_path)
    assert gather_failures(tmp_path, np.array([2])) == 0
    assert not (tmp_path / "_failed.jsonl").exists()
