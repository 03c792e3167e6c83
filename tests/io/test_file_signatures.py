import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.io.outputs import write_records
from inbedder.io.tables import open_texts, read_rows, read_table

ROWS = [{"text": "a b", "n": 1}]
CSV = b"text,n\na b,1\n"


def make_content(folder, kind):
    """Make the content of a file of a type."""
    if kind in (".xlsx", ".parquet"):
        if kind == ".xlsx":
            pytest.importorskip("openpyxl")
        write_records(ROWS, folder / f"source{kind}")
        return (folder / f"source{kind}").read_bytes()
    if kind in (".zip", ".docx"):
        with zipfile.ZipFile(folder / "source.zip", "w") as archive:
            archive.writestr("t.csv" if kind == ".zip" else "word/document.xml", CSV)
        return (folder / "source.zip").read_bytes()
    if kind == ".npy":
        np.save(folder / "source.npy", np.ones(3))
        return (folder / "source.npy").read_bytes()
    return {".bz2": bz2.compress(CSV), ".xz": lzma.compress(CSV), ".gz": gzip.compress(CSV)}[kind]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.json", "t.txt", "t.xlsx", "t.parquet"])
@pytest.mark.parametrize("kind", [".xlsx", ".parquet", ".zip", ".docx", ".bz2", ".xz", ".npy", ".gz"])
def test_a_file_under_a_wrong_name_is_told_by_its_first_bytes(tmp_path, name, kind):
    content = make_content(tmp_path, kind)
    path = tmp_path / name
    path.write_bytes(content)
    if name.endswith(kind) or (kind == ".gz" and name not in ("t.xlsx", "t.parquet")) or (name, kind) == ("t.xlsx", ".zip"):
        return
    expected = f"is not a {path.suffix} file: its first bytes are those of a {kind} file."
    with pytest.raises(InputError) as raised:
        read_rows(str(path))
    assert expected in str(raised.value)
    assert "iconv" not in str(raised.value)


def test_the_advice_fits_the_type(tmp_path):
    advices = {".xlsx": "Rename it to end in .xlsx.", ".bz2": "Unpack it first.", ".npy": "Save it as .csv or .xlsx."}
    for kind, advice in advices.items():
        (tmp_path / "t.csv").write_bytes(make_content(tmp_path, kind))
        with pytest.raises(InputError) as raised, open_texts(str(tmp_path / "t.csv")):
            pass
        assert str(raised.value).endswith(advice)


def test_a_compressed_file_of_another_type_is_told(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(make_content(tmp_path, ".parquet")))
    with pytest.raises(InputError, match=r"first bytes are those of a \.parquet file"):
        read_table(str(tmp_path / "t.csv.gz"))


def test_standard_input_of_another_type_is_told(tmp_path, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(make_content(tmp_path, ".parquet")))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(InputError, match=r"'-' is not a \.txt file: its first bytes are those of a \.parquet file"):
        read_table("-")
