import errno
import os
import socket
import stat
import subprocess
import sys

import pytest

from inbedder.errors import InputError
from inbedder.io.files import atomic_folder, atomic_write, check_target


def test_the_target_appears_complete_and_no_temporary_file_stays(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_only_the_old_file(tmp_path, interruption):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(interruption), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise interruption
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path):
    with pytest.raises(InputError, match=r"Cannot write .*No space left on device"), atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"Cannot write .*No such file or directory"), atomic_write(tmp_path / "no" / "a.txt"):
        pass


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor):
        events.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def record_replace(source, target):
        events.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    target = tmp_path / "a.txt"
    with atomic_write(target) as temporary:
        temporary.write_text("new")
    assert events == [target.stat().st_ino, "renamed", tmp_path.stat().st_ino]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_an_existing_file_keeps_its_mode(tmp_path, mode):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(mode)
    with atomic_write(target) as temporary:
        temporary.write_text("new")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", mode)


@pytest.mark.skipif(os.name != "posix", reason="a umask is POSIX's")
def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    code = (
        "import sys\nfrom inbedder.io.files import atomic_write\nwith atomic_write(sys.argv[1]) as file: file.write_text('new')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], check=True, umask=0o027)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_writing_a_file_does_not_set_the_umask(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda _mask: pytest.fail("another thread's new file would get other rights"))
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path, exists):
    (tmp_path / "kept").mkdir()
    target, link, second = tmp_path / "kept" / "a.txt", tmp_path / "link.txt", tmp_path / "second.txt"
    if exists:
        target.write_text("old")
    link.symlink_to("kept/a.txt")
    second.symlink_to(link)
    with atomic_write(second) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("new")
    assert link.is_symlink() and second.is_symlink()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path / "kept") == ["a.txt"]


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, message in [
            ("pipe", "is a pipe"),
            ("folder", "is a folder"),
            ("device", "is a device"),
            ("socket", "is a socket"),
            ("loop", "Cannot write .*[Ss]ymbolic link"),
        ]:
            with pytest.raises(InputError, match=message), atomic_write(tmp_path / name):
                pytest.fail("the work began")
            with pytest.raises(InputError, match=message):
                check_target(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["device", "folder", "loop", "pipe", "socket"]


def test_a_name_of_maximum_length_is_written(tmp_path):
    target = tmp_path / ("a" * 251 + ".txt")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"


def test_the_check_before_a_run_leaves_no_file(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    check_target(tmp_path / "a.txt", [tmp_path / "other.txt", tmp_path, "-"])
    check_target(tmp_path / "new.txt", [tmp_path / "new.txt"])
    assert os.listdir(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"
    with pytest.raises(InputError, match="is the input itself"):
        check_target(tmp_path / "a.txt", [tmp_path / "b.txt", tmp_path / "." / "a.txt"])
    with pytest.raises(InputError, match=r"Cannot write .*No such file"):
        check_target(tmp_path / "no" / "a.txt")


def test_a_folder_without_write_permission_is_detected(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match=r"Cannot write .*Permission denied"):
            check_target(tmp_path / "a.txt")
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("a")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with atomic_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("a")
        assert not any((tmp_path / "out").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "a").read_text() == "a"
