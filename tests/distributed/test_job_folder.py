import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from inbedder.distributed.job_folder import clear_failures, deduplicate_parts, gather_failures, id_key, is_done, open_job, survey
from inbedder.errors import InputError


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def part(folder, name, ids):
    table = pyarrow.table({"id": ids, "text": [str(one) for one in ids], "embedding": [[1.0, 2.0]] * len(ids)})
    parquet.write_table(table, folder / f"part-{name}.parquet")


def ids_in(folder):
    return [one for path in sorted(folder.glob("part-*")) for one in parquet.read_table(path)["id"].to_pylist()]


def test_rows_are_counted_over_files_and_bad_ones_with_them(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"text": "one"}, {"text": None}])
    (tmp_path / "b.csv").write_text("text,n\nthree,3\n,4\n")
    (tmp_path / "_notes.csv").write_text("not a table")
    found = survey(str(tmp_path))
    assert (found.rows, [one.first for one in found.files], found.text_ids) == (4, [0, 2], False)


def test_the_digest_is_of_the_content_and_not_of_the_place(tmp_path):
    one, other, third = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    one.write_text("cats\n")
    other.write_text("cats\n")
    third.write_text("dogs\n")
    assert survey(str(one)).digest == survey(str(other)).digest != survey(str(third)).digest


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", "b", "a"], "rows 1 and 3 have the same id"),
        (["a", None, "b"], "row 2: the id in column 'id' is None"),
        ([1, 2.5, 3], "row 2: the id in column 'id' is 2.5"),
        ([1, "a", 3], "mixes numbers and texts"),
    ],
)
def test_ids_that_cannot_be_keys_are_refused_before_the_work(tmp_path, ids, says):
    source = write_lines(tmp_path / "a.jsonl", [{"id": one, "text": "cats"} for one in ids])
    with pytest.raises(InputError, match=says):
        survey(source, "text", "id")


def test_a_column_that_is_not_there_and_standard_input_are_refused(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"text": "cats"}])
    with pytest.raises(InputError, match="No column 'key'"):
        survey(source, None, "key")
    with pytest.raises(InputError, match="not standard input"):
        survey("-")


def test_what_is_done_is_found_by_key():
    done = np.sort(np.array([id_key(one) for one in ("a", "b", "c")]))
    asked = np.array([id_key(one) for one in ("b", "x", "c")])
    assert is_done(asked, done).tolist() == [True, False, True]
    assert is_done(asked, np.empty(0, dtype=np.int64)).tolist() == [False] * 3


def test_the_same_job_goes_on_and_another_is_refused(tmp_path):
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


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no job"), open_job(tmp_path, {}):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match="is a file"), open_job(tmp_path / "thesis.tex", {}):
        pass


def test_two_runs_cannot_be_at_work_in_one_folder(tmp_path):
    with (
        open_job(tmp_path / "out", {}),
        pytest.raises(InputError, match="Another run is at work"),
        open_job(tmp_path / "out", {}),
    ):
        pass
    with open_job(tmp_path / "out", {}):
        pass


@pytest.mark.parametrize("kind", [int, lambda number: f"key {number}"])
def test_settling_leaves_each_id_once(tmp_path, kind):
    part(tmp_path, "1", [kind(one) for one in (1, 2, 3)])
    part(tmp_path, "2", [kind(one) for one in (2, 4)])
    part(tmp_path, "3", [kind(one) for one in (1, 3)])
    keys = deduplicate_parts(tmp_path)
    assert sorted(ids_in(tmp_path)) == [kind(one) for one in (1, 2, 3, 4)]
    assert keys.tolist() == sorted(id_key(kind(one)) for one in (1, 2, 3, 4))
    assert (deduplicate_parts(tmp_path) == keys).all()


def test_a_damaged_part_and_half_a_part_are_removed(tmp_path, caplog):
    part(tmp_path, "1", [1, 2])
    part(tmp_path, "2", [3])
    whole = (tmp_path / "part-2.parquet").read_bytes()
    (tmp_path / "part-2.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / ".part-3.parquet.x1.parquet").write_bytes(whole[:10])
    assert deduplicate_parts(tmp_path).tolist() == [1, 2]
    assert [one.name for one in tmp_path.iterdir()] == ["part-1.parquet"]
    assert "damaged" in caplog.text


def test_failures_are_gathered_once_each_and_without_rows_that_have_a_vector(tmp_path):
    clear_failures(tmp_path)
    failed = [{"row": row, "id": row, "reason": "empty"} for row in (1, 2, 3)]
    write_lines(tmp_path / "_failed" / "part-1.jsonl", failed)
    write_lines(tmp_path / "_failed" / "part-2.jsonl", [failed[0], {"row": 9, "id": None, "reason": "not JSON"}])
    assert gather_failures(tmp_path, np.array([2])) == 3
    assert [json.loads(line)["row"] for line in (tmp_path / "_failed.jsonl").open()] == [1, 3, 9]
    clear_failures(tmp_path)
    assert gather_failures(tmp_path, np.array([2])) == 0
    assert not (tmp_path / "_failed.jsonl").exists()
