import errno
import os

import pytest

from inbedder.errors import InputError
from inbedder.files import atomic_write


def test_the_target_appears_whole_and_no_temporary_stays(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(interruption), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise interruption
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"Cannot write .*No space left on device"), atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(InputError, match=r"Cannot write .*No such file or directory"), atomic_write(tmp_path / "no" / "a.txt"):
        pass
