import json

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping import saved_files
from inbedder.grouping.saved_files import METADATA_FILE, check_save_folder, read_grouping_files, write_grouping_files

ARRAYS = {"centres": np.eye(3, dtype=np.float32), "labels": np.arange(7)}


@pytest.fixture
def kept(tmp_path):
    write_grouping_files(tmp_path / "kept", {"names": ["a", "b"]}, ARRAYS)
    return tmp_path / "kept"


def npy_of(folder, name):
    return next(folder.glob(f"{name}-*.npy"))


def test_what_is_written_is_read_again_and_is_json_and_npy_alone(kept):
    about, arrays = read_grouping_files(kept, ("centres", "labels"))
    assert about["names"] == ["a", "b"]
    assert all(np.array_equal(found, ARRAYS[name]) for found, name in zip(arrays, ARRAYS, strict=True))
    assert sorted(path.suffix for path in kept.iterdir()) == [".json", ".npy", ".npy"]


def test_a_second_grouping_takes_the_place_of_the_first_and_leaves_no_file_of_it(kept):
    write_grouping_files(kept, {"names": []}, {"centres": np.zeros((1, 2))})
    about, (centres,) = read_grouping_files(kept, ("centres",))
    assert about["names"] == [] and centres.shape == (1, 2)
    assert len(list(kept.iterdir())) == 2


def test_a_writer_that_dies_before_the_end_leaves_the_grouping_that_was_there(kept, monkeypatch):
    written = saved_files.atomic_write

    def dying(path):
        if path.name == METADATA_FILE:
            raise KeyboardInterrupt
        return written(path)

    monkeypatch.setattr(saved_files, "atomic_write", dying)
    with pytest.raises(KeyboardInterrupt):
        write_grouping_files(kept, {"names": ["c"]}, {"centres": np.zeros((1, 2)), "labels": np.arange(3)})
    about, (_, labels) = read_grouping_files(kept, ("centres", "labels"))
    assert about["names"] == ["a", "b"] and len(labels) == 7


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


def replaced(path):
    np.save(path, np.zeros(2))


def edited(**changes):
    def edit(folder):
        about = json.loads((folder / METADATA_FILE).read_text())
        (folder / METADATA_FILE).write_text(json.dumps(about | changes))

    return edit


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / METADATA_FILE).unlink(), r"holds no grouping \(grouping.json is not there\). Keep one with"),
        (lambda folder: cut(folder / METADATA_FILE), "is damaged: grouping.json cannot be read"),
        (lambda folder: (folder / METADATA_FILE).write_text("[" * 100_000), "is damaged: grouping.json cannot be read"),
        (lambda folder: (folder / METADATA_FILE).write_text("[]"), "grouping.json does not list its arrays"),
        (lambda folder: npy_of(folder, "labels").unlink(), r"labels-\w+.npy cannot be read \(No such file"),
        (lambda folder: cut(npy_of(folder, "labels")), r"labels-\w+.npy is not what was written"),
        (lambda folder: replaced(npy_of(folder, "centres")), r"centres-\w+.npy is not what was written"),
        (edited(format=9), "has format 9, and this version reads 1. Group again with --save"),
        (edited(arrays={}), "names no file of centres"),
        (edited(arrays={"centres": {"file": "../../etc/passwd", "sha256": ""}}), "names no file of centres"),
    ],
)
def test_damage_is_named_with_a_cure(kept, damage, told):
    damage(kept)
    with pytest.raises(InputError, match=told) as error:
        read_grouping_files(kept, ("centres", "labels"))
    assert any(cure in str(error.value) for cure in ("--save", "take a copy"))


def test_an_array_of_objects_is_refused_though_its_hash_is_right(kept):
    import hashlib

    path = npy_of(kept, "labels")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    about = json.loads((kept / METADATA_FILE).read_text())
    about["arrays"]["labels"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (kept / METADATA_FILE).write_text(json.dumps(about))
    with pytest.raises(InputError, match="is no array"):
        read_grouping_files(kept, ("centres", "labels"))


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"holds other files and no grouping\. Name a new folder"):
        write_grouping_files(tmp_path, {}, ARRAYS)
    with pytest.raises(InputError, match="is no folder that can be used"):
        check_save_folder(tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
