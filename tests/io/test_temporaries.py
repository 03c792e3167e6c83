import os
import subprocess
import sys
from pathlib import Path

import pytest

from inbedder.io.files import atomic_folder, atomic_write
from inbedder.io.temporaries import hold_temporary, is_temporary, remove_leftovers

KILLED_WRITER = """
import os, signal, sys
from inbedder.io.files import atomic_folder, atomic_write
write = {"file": atomic_write, "folder": atomic_folder}[sys.argv[1]]
with write(sys.argv[2]) as temporary:
    (temporary / "a" if sys.argv[1] == "folder" else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_write_sweeps_what_a_killed_writer_left(tmp_path, kind):
    run = subprocess.run([sys.executable, "-c", KILLED_WRITER, kind, tmp_path / "kk.npy"], check=False)
    assert run.returncode == -9
    assert [is_temporary(name) for name in os.listdir(tmp_path)] == [True]
    with atomic_write(tmp_path / "other.txt") as temporary:
        temporary.write_text("whole")
    assert os.listdir(tmp_path) == ["other.txt"]


@pytest.mark.parametrize("write", [atomic_write, atomic_folder])
def test_the_temporary_of_a_living_writer_stays(tmp_path, write):
    with write(tmp_path / "a") as temporary:
        remove_leftovers(tmp_path)
        code = "import pathlib, sys; from inbedder.io.temporaries import *; remove_leftovers(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
        assert temporary.exists()


def test_foreign_files_are_never_swept(tmp_path):
    names = [".kk.npy.55aam5lj.npy", ".inbedder-abcdefgh", "kk-inbedder-abcdefgh.npy", ".kk-inbedder-ABCDEFGH.npy", ".kk.tmp"]
    for name in names:
        (tmp_path / name).write_text("mine")
    os.mkfifo(tmp_path / ".pipe-inbedder-abcdefgh")
    (tmp_path / "target").write_text("mine")
    (tmp_path / ".link-inbedder-abcdefgh").symlink_to("target")
    names_before = sorted(os.listdir(tmp_path))
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == names_before


@pytest.mark.parametrize("name", ["a", "a.b.npy", "a" * 255, "ż" * 120 + ".csv", "a." + "b" * 250, ".hidden", "a\nb.csv"])
def test_the_temporary_of_any_name_is_recognized(tmp_path, name):
    with hold_temporary(tmp_path / name) as temporary:
        assert is_temporary(temporary.name)
        assert name in {".hidden", "a." + "b" * 250} or temporary.suffix == Path(name).suffix
    assert os.listdir(tmp_path) == []


def test_a_temporary_swept_before_it_was_locked_is_created_again(tmp_path, monkeypatch):
    from inbedder.io import temporaries

    original_open, created = temporaries._open_to_lock, []

    def sweep_first(path):
        created.append(path)
        if len(created) == 1:
            path.unlink()
        return original_open(path)

    monkeypatch.setattr(temporaries, "_open_to_lock", sweep_first)
    with hold_temporary(tmp_path / "a") as temporary:
        assert temporary == created[1] and temporary.exists()


def test_a_missing_folder_is_not_swept(tmp_path):
    remove_leftovers(tmp_path / "missing")
