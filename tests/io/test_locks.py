import os
import subprocess
import sys
from threading import Thread

import pytest

from inbedder.errors import InputError
from inbedder.io.locks import lock_folder

HOLD = """
import sys
from pathlib import Path
from inbedder.io.locks import lock_folder
with lock_folder(Path(sys.argv[1]), "in use"):
    print("locked", flush=True)
    input()
"""


def test_a_second_process_is_refused_until_the_first_dies(tmp_path):
    folder = tmp_path / "new" / "folder"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match="in use"), lock_folder(folder, "in use"):
            pytest.fail("both hold the lock")
        holder.kill()
    with lock_folder(folder, "in use"):
        assert os.listdir(folder)
    assert os.listdir(folder) == []


def test_threads_that_wait_hold_the_lock_one_by_one(tmp_path):
    holders, counts = [], []

    def hold():
        for _ in range(20):
            with lock_folder(tmp_path, "in use", wait_seconds=60):
                holders.append(1)
                counts.append(len(holders))
                holders.pop()

    threads = [Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 80
    assert os.listdir(tmp_path) == []


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path, "in use"):
        raise ZeroDivisionError
    with lock_folder(tmp_path, "in use"):
        pass


def test_a_file_cannot_be_locked_as_a_folder(tmp_path):
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is a file\. Choose a new folder"), lock_folder(tmp_path / "a.txt", "in use"):
        pytest.fail("a file is no folder")
    with pytest.raises(InputError, match="Cannot write to"), lock_folder(tmp_path / "a.txt" / "b", "in use"):
        pytest.fail("a file holds no folder")
