import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from inbedder.distributed.job_folder import (
    clear_failures,
    deduplicate_parts,
    gather_failures,
    is_done,
    open_job,
    scan_source,
    to_key,
)
from inbedder.errors import InputError


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_part(folder, name, ids):
    table = pyarrow.table({"id": ids, "text": [str(row_id) for row_id in ids], "embedding": [[1.0, 2.0]] * len(ids)})
    parquet.write_table(table, folder / f"part-{name}.parquet")


def read_ids(folder):
    return [row_id for path in sorted(folder.glob("part-*")) for row_id in parquet.read_table(path)["id"].to_pylist()]


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


def test_done_rows_are_found_by_key():
    done_keys = np.sort(np.array([to_key(row_id) for row_id in ("a", "b", "c")]))
    keys = np.array([to_key(row_id) for row_id in ("b", "x", "c")])
    assert is_done(keys, done_keys).tolist() == [True, False, True]
    assert is_done(keys, np.empty(0, dtype=np.int64)).tolist() == [False] * 3


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


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    with (
        open_job(tmp_path / "out", {}),
        pytest.raises(InputError, match="Another run is writing"),
        open_job(tmp_path / "out", {}),
    ):
        pass
    with open_job(tmp_path / "out", {}):
        pass


@pytest.mark.parametrize("kind", [int, lambda number: f"key {number}"])
def test_deduplicating_leaves_each_id_once(tmp_path, kind):
    write_part(tmp_path, "1", [kind(number) for number in (1, 2, 3)])
    write_part(tmp_path, "2", [kind(number) for number in (2, 4)])
    write_part(tmp_path, "3", [kind(number) for number in (1, 3)])
    keys = deduplicate_parts(tmp_path)
    assert sorted(read_ids(tmp_path)) == [kind(number) for number in (1, 2, 3, 4)]
    assert keys.tolist() == sorted(to_key(kind(number)) for number in (1, 2, 3, 4))
    assert (deduplicate_parts(tmp_path) == keys).all()


def test_damaged_and_unfinished_parts_are_removed(tmp_path, caplog):
    write_part(tmp_path, "1", [1, 2])
    write_part(tmp_path, "2", [3])
    content = (tmp_path / "part-2.parquet").read_bytes()
    (tmp_path / "part-2.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / ".part-3.parquet.x1.parquet").write_bytes(content[:10])
    assert deduplicate_parts(tmp_path).tolist() == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.parquet"]
    assert "damaged" in caplog.text


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
