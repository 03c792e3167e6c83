import contextlib

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from inbedder.distributed import job_parts
from inbedder.distributed.job_parts import deduplicate_parts, is_done, to_key
from inbedder.errors import InputError


def write_part(folder, name, ids):
    table = pyarrow.table({"id": ids, "text": [str(row_id) for row_id in ids], "embedding": [[1.0, 2.0]] * len(ids)})
    path = folder / f"part-{name:0>12}-0123456789ab.parquet"
    job_parts.write_part(path, table)
    return path


def read_ids(folder):
    return [row_id for path in sorted(folder.glob("part-*")) for row_id in parquet.read_table(path)["id"].to_pylist()]


def test_done_rows_are_found_by_key():
    done_keys = np.sort(np.array([to_key(row_id) for row_id in ("a", "b", "c")]))
    keys = np.array([to_key(row_id) for row_id in ("b", "x", "c")])
    assert is_done(keys, done_keys).tolist() == [True, False, True]
    assert is_done(keys, np.empty(0, dtype=np.int64)).tolist() == [False] * 3


@pytest.mark.parametrize("kind", [int, lambda number: f"key {number}"])
def test_deduplicating_leaves_each_id_once(tmp_path, kind):
    write_part(tmp_path, "1", [kind(number) for number in (1, 2, 3)])
    write_part(tmp_path, "2", [kind(number) for number in (2, 4)])
    write_part(tmp_path, "3", [kind(number) for number in (1, 3)])
    keys = deduplicate_parts(tmp_path)
    assert sorted(read_ids(tmp_path)) == [kind(number) for number in (1, 2, 3, 4)]
    assert keys.tolist() == sorted(to_key(kind(number)) for number in (1, 2, 3, 4))
    assert (deduplicate_parts(tmp_path) == keys).all()


def test_a_damaged_part_is_removed_and_its_rows_are_not_done(tmp_path, caplog):
    path, damaged = write_part(tmp_path, "1", [1, 2]), write_part(tmp_path, "2", [3])
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    assert deduplicate_parts(tmp_path).tolist() == [1, 2]
    assert list(tmp_path.iterdir()) == [path]
    assert "damaged" in caplog.text


@pytest.mark.parametrize("name", ["id", "text", "embedding"])
def test_damage_in_any_column_is_found(tmp_path, name):
    path = write_part(tmp_path, "1", [1, 2, 3])
    column = parquet.ParquetFile(path).metadata.row_group(0).column(job_parts.PART_COLUMNS.index(name))
    content = bytearray(path.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1  # the last byte of its data
    path.write_bytes(content)
    assert deduplicate_parts(tmp_path).tolist() == []
    assert list(tmp_path.iterdir()) == []


def test_no_flipped_bit_of_a_part_goes_unnoticed_or_raises(tmp_path):
    path = write_part(tmp_path, "1", [1, 2, 3])
    content, table = path.read_bytes(), parquet.read_table(path)
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :])
        with contextlib.suppress(InputError):
            part = job_parts.read_part(path)
            assert part is None or part.equals(table)


def test_rows_that_are_kept_have_checksums(tmp_path):
    write_part(tmp_path, "1", [1])
    path = write_part(tmp_path, "2", [1, 2])
    deduplicate_parts(tmp_path)
    content = path.read_bytes()
    for position in range(4, len(content) - 700):
        path.write_bytes(content[:position] + bytes([content[position] ^ 255]) + content[position + 1 :])
        part = job_parts.read_part(path)
        assert part is None or part["id"].to_pylist() == [2]


def test_parts_with_other_columns_or_missing_values_are_damaged(tmp_path):
    for number, table in enumerate(
        [
            pyarrow.table({"id": [1], "text": ["a"]}),
            pyarrow.table({"id": [1], "text": ["a"], "embedding": pyarrow.array([None], pyarrow.list_(pyarrow.float32()))}),
            pyarrow.table({"id": [1.5], "text": ["a"], "embedding": [[1.0]]}),
        ]
    ):
        job_parts.write_part(tmp_path / f"part-{number:012}-0123456789ab.parquet", table)
    assert deduplicate_parts(tmp_path).tolist() == []


@pytest.mark.parametrize("content", [b"mine", None])
def test_foreign_parts_are_refused_and_never_deleted(tmp_path, content):
    path = write_part(tmp_path, "1", [1]).rename(tmp_path / "part-0.parquet")
    content = path.read_bytes() if content is None else content
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"part-0\.parquet' is not a part of this job\. Move it elsewhere"):
        deduplicate_parts(tmp_path)
    assert path.read_bytes() == content


def test_a_part_that_cannot_be_read_now_is_not_deleted(tmp_path):
    path = tmp_path / "part-000000000001-0123456789ab.parquet"
    path.mkdir()
    with pytest.raises(InputError, match="Cannot read"):
        deduplicate_parts(tmp_path)
    assert path.exists()
