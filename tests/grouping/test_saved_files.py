import json

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping import saved_files
from inbedder.grouping.saved_files import METADATA_FILE, check_save_folder, read_grouping_files, write_grouping_files

ARRAYS = {"centres": np.eye(3, dtype=np.float32), "labels": np.arange(7)}


@pytest.fixture
def folder(tmp_path):
    write_grouping_files(tmp_path / "saved", {"names": ["a", "b"]}, ARRAYS)
    return tmp_path / "saved"


def npy_of(folder, name):
    return next(folder.glob(f"{name}-*.npy"))


def test_what_is_written_is_read_again_and_is_only_json_and_npy(folder):
    metadata, arrays = read_grouping_files(folder, ("centres", "labels"))
    assert metadata["names"] == ["a", "b"]
    assert all(np.array_equal(array, ARRAYS[name]) for array, name in zip(arrays, ARRAYS, strict=True))
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".npy", ".npy"]


def test_a_second_grouping_replaces_all_files_of_the_first(folder):
    write_grouping_files(folder, {"names": []}, {"centres": np.zeros((1, 2))})
    metadata, (centres,) = read_grouping_files(folder, ("centres",))
    assert metadata["names"] == [] and centres.shape == (1, 2)
    assert len(list(folder.iterdir())) == 2


def test_an_interrupted_writer_leaves_the_previous_grouping(folder, monkeypatch):
    original_write = saved_files.atomic_write

    def interrupt(path):
        if path.name == METADATA_FILE:
            raise KeyboardInterrupt
        return original_write(path)

    monkeypatch.setattr(saved_files, "atomic_write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_grouping_files(folder, {"names": ["c"]}, {"centres": np.zeros((1, 2)), "labels": np.arange(3)})
    metadata, (_, labels) = read_grouping_files(folder, ("centres", "labels"))
    assert metadata["names"] == ["a", "b"] and len(labels) == 7


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def overwrite(path):
    np.save(path, np.zeros(2))


def edited(**changes):
    def edit(folder):
        metadata = json.loads((folder / METADATA_FILE).read_text())
        (folder / METADATA_FILE).write_text(json.dumps(metadata | changes))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / METADATA_FILE).unlink(), r"holds no grouping \(grouping.json is missing\). Save one with"),
        (lambda folder: truncate(folder / METADATA_FILE), "is damaged: grouping.json cannot be read"),
        (lambda folder: (folder / METADATA_FILE).write_text("[" * 100_000), "is damaged: grouping.json cannot be read"),
        (lambda folder: (folder / METADATA_FILE).write_text("[]"), "grouping.json does not list its arrays"),
        (lambda folder: npy_of(folder, "labels").unlink(), r"labels-\w+.npy cannot be read \(No such file"),
        (lambda folder: truncate(npy_of(folder, "labels")), r"labels-\w+.npy has another SHA-256"),
        (lambda folder: overwrite(npy_of(folder, "centres")), r"centres-\w+.npy has another SHA-256"),
        (edited(format=9), "has format 9, and this version reads 1. Group again with --save"),
        (edited(arrays={}), "names no file for centres"),
        (edited(arrays={"centres": {"file": "../../etc/passwd", "sha256": ""}}), "names no file for centres"),
    ],
)
def test_damage_is_reported_with_advice(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        read_grouping_files(folder, ("centres", "labels"))
    assert any(cure in str(error.value) for cure in ("--save", "restore a copy"))


def test_an_array_of_objects_is_refused_though_its_hash_is_right(folder):
    import hashlib

    path = npy_of(folder, "labels")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    metadata = json.loads((folder / METADATA_FILE).read_text())
    metadata["arrays"]["labels"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / METADATA_FILE).write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="is not an array"):
        read_grouping_files(folder, ("centres", "labels"))


def test_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"holds other files but no grouping\. Choose a new folder"):
        write_grouping_files(tmp_path, {}, ARRAYS)
    with pytest.raises(InputError, match="cannot be used as a folder"):
        check_save_folder(tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
