import hashlib
import io
import json
import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping.stored import saved_files
from inbedder.grouping.stored.saved_files import (
    HASH,
    METADATA_FILE,
    check_save_folder,
    hash_metadata,
    read_grouping_files,
    write_grouping_files,
)

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


def replace_by_pipe(folder):
    (folder / METADATA_FILE).unlink()
    os.mkfifo(folder / METADATA_FILE)


def edited(**changes):
    def edit(folder):
        metadata = json.loads((folder / METADATA_FILE).read_text()) | changes
        (folder / METADATA_FILE).write_text(json.dumps(metadata | {HASH: hash_metadata(metadata)}))

    return edit


def change_without_hash(folder):
    path = folder / METADATA_FILE
    path.write_text(path.read_text().replace('"a"', '"A"'))


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
        (edited(format=True), "has format True, and this version reads 1"),
        (change_without_hash, "grouping.json has another SHA-256 than it records"),
        (replace_by_pipe, "is a pipe"),
        (edited(arrays={}), "names no file for centres"),
        (edited(arrays={"centres": {"file": "../../etc/passwd", "sha256": ""}}), "names no file for centres"),
    ],
)
def test_damage_is_reported_with_advice(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        read_grouping_files(folder, ("centres", "labels"))
    assert any(cure in str(error.value) for cure in ("--save", "restore a copy"))


def make_npy(header):
    """Write an npy file of version 1.0 with any header and eight bytes of data."""
    header = header.encode()
    return np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header + bytes(8)


def save_objects():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        save_objects(),
        b"PK\x03\x04" + bytes(60),
        b"",
        make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 384)}"),
        make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2)}"),
        make_npy("{'descr': '|V9999999999', 'fortran_order': False, 'shape': (1,)}"),
        make_npy("{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
        make_npy("(" * 9000),
        make_npy("{'descr': '<f4'"),
    ],
)
def test_bytes_that_are_no_array_are_damage_though_their_hash_is_right(folder, content):
    path = npy_of(folder, "labels")
    path.write_bytes(content)
    metadata = json.loads((folder / METADATA_FILE).read_text())
    metadata["arrays"]["labels"]["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / METADATA_FILE).write_text(json.dumps(metadata | {HASH: hash_metadata(metadata)}))
    with pytest.raises(InputError, match=rf"is damaged: {path.name} is not an array"):
        read_grouping_files(folder, ("centres", "labels"))


def run_at(monkeypatch, name, action):
    """Run an action once, when a writer begins to write a file."""
    original_write, pending = saved_files.atomic_write, [action]

    def write(path):
        if path.name.startswith(name) and pending:
            pending.pop()()
        return original_write(path)

    monkeypatch.setattr(saved_files, "atomic_write", write)


@pytest.mark.parametrize("name", ["centres", "labels", METADATA_FILE])
def test_a_second_saver_waits_for_the_first(tmp_path, monkeypatch, name):
    folder = tmp_path / "saved"
    save_again = Thread(
        target=write_grouping_files, args=(folder, {"names": ["second"]}, {**ARRAYS, "centres": np.zeros((1, 2))})
    )

    def interfere():
        save_again.start()
        save_again.join(timeout=0.3)

    run_at(monkeypatch, name, interfere)
    write_grouping_files(folder, {"names": ["first"]}, ARRAYS)
    save_again.join()
    metadata, (centres, labels) = read_grouping_files(folder, ("centres", "labels"))
    assert metadata["names"] == ["second"] and centres.shape == (1, 2) and len(labels) == 7
    assert len(list(folder.iterdir())) == 3


SAVER = """
import sys
import numpy as np
from inbedder.grouping.stored.saved_files import write_grouping_files
for number in range(40):
    write_grouping_files(sys.argv[1], {"size": number + 1}, {"centres": np.full((number + 1, 2), int(sys.argv[2]))})
"""


def test_a_saver_replaces_only_the_version_that_it_names(folder):
    version = read_grouping_files(folder, ())[0][HASH]
    second = write_grouping_files(folder, {"names": ["second"]}, ARRAYS, version)
    assert read_grouping_files(folder, ())[0][HASH] == second != version
    with pytest.raises(InputError, match=r"was saved by another process since it was loaded\. Load it again"):
        write_grouping_files(folder, {"names": ["third"]}, ARRAYS, version)
    assert read_grouping_files(folder, ())[0]["names"] == ["second"]


def test_readers_of_two_savers_see_only_whole_groupings(folder):
    savers = [subprocess.Popen([sys.executable, "-c", SAVER, folder, str(number)]) for number in (1, 2)]
    while any(saver.poll() is None for saver in savers):
        metadata, (centres,) = read_grouping_files(folder, ("centres",))
        assert len(centres) == metadata.get("size", 3)
    assert [saver.returncode for saver in savers] == [0, 0]
    assert len(list(folder.iterdir())) == 2


def test_a_reader_that_misses_a_replaced_file_starts_again(folder, monkeypatch):
    original_read = saved_files._read_array

    def replace_first(*arguments):
        monkeypatch.setattr(saved_files, "_read_array", original_read)
        write_grouping_files(folder, {"names": ["new"]}, {"centres": np.zeros((1, 2))})
        return original_read(*arguments)

    monkeypatch.setattr(saved_files, "_read_array", replace_first)
    metadata, (centres,) = read_grouping_files(folder, ("centres",))
    assert metadata["names"] == ["new"] and centres.shape == (1, 2)


KILLED_SAVER = """
import os, signal, sys
import numpy as np
replace, count = os.replace, [int(sys.argv[2])]
def kill(source, target):
    count[0] -= 1
    if not count[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = kill
from inbedder.grouping.stored.saved_files import write_grouping_files
write_grouping_files(sys.argv[1], {"names": []}, {"centres": np.ones((2, 2)), "labels": np.zeros(2, dtype=int)})
"""


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_killed_first_save_can_be_repeated_and_its_files_are_swept(tmp_path, renames):
    folder = tmp_path / "saved"
    assert subprocess.run([sys.executable, "-c", KILLED_SAVER, folder, str(renames)], check=False).returncode == -9
    assert os.listdir(folder)
    write_grouping_files(folder, {"names": ["a"]}, ARRAYS)
    assert read_grouping_files(folder, ("centres", "labels"))[0]["names"] == ["a"]
    assert len(list(folder.iterdir())) == 3


def test_foreign_files_in_a_saved_grouping_stay(folder):
    foreign = ["notes.txt", "vectors-0123456789abcdef.npy", ".hidden.npy", "centres-old.npy"]
    for name in foreign:
        (folder / name).write_text("mine")
    write_grouping_files(folder, {"names": []}, {"centres": np.zeros((1, 2))})
    assert all((folder / name).read_text() == "mine" for name in foreign)
    assert len(list(folder.iterdir())) == 2 + len(foreign)


def test_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"holds other files but no grouping\. Choose a new folder"):
        write_grouping_files(tmp_path, {}, ARRAYS)
    with pytest.raises(InputError, match="cannot be used as a folder"):
        check_save_folder(tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_foreign_array_is_not_taken_for_a_leftover(tmp_path):
    (tmp_path / "centres-0123456789abcdef.npy").write_text("mine")
    with pytest.raises(InputError, match="holds other files but no grouping"):
        write_grouping_files(tmp_path, {}, ARRAYS)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
