"""A path that begins with ~ is in the home folder, wherever it enters."""

import os
from pathlib import Path

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.distributed.job_folder import scan_source
from inbedder.errors import ModelError
from inbedder.io.files import atomic_folder, atomic_write, check_target, is_same_file
from inbedder.user_paths import expand_name, expand_path

TEXTS = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder other than the current one, which must stay empty."""
    home, current = tmp_path / "home", tmp_path / "current"
    home.mkdir()
    current.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(current)
    yield home
    assert os.listdir(current) == []


@pytest.mark.parametrize("name", ["mini", "BrandonZYW/llama", "-", "a/~/b", "~nobody-of-this-name/a", "", "~\0", "/tmp/~"])
def test_a_name_that_does_not_begin_with_the_home_folder_stays(name):
    assert expand_name(name) == name


def test_every_kind_of_path_is_expanded(home):
    assert expand_name("~") == str(home)
    assert expand_name("~/m") == expand_name(Path("~/m")) == str(home / "m")
    assert expand_path("~/m") == expand_path(Path("~") / "m") == home / "m"


def test_files_and_folders_are_written_to_the_home_folder(home):
    check_target("~/a.txt")
    with atomic_write("~/a.txt") as temporary:
        temporary.write_text("new")
    with atomic_folder("~/b/c"):
        pass
    assert (home / "a.txt").read_text() == "new" and (home / "b" / "c").is_dir()
    assert is_same_file("~/a.txt", home / "a.txt")


def test_groupings_and_reports_are_in_the_home_folder(home):
    result = cluster(TEXTS, "What is it about?", k=2)
    result.save("~/groups")
    result.save_html("~/report.html")
    assert np.array_equal(Grouping.load("~/groups").assign(TEXTS).labels, result.labels)
    assert sorted(os.listdir(home)) == ["groups", "report.html"]


def test_models_caches_and_exports_are_in_the_home_folder(home, make_model):
    Path(home / "m").symlink_to(make_model("bert"))
    model = InBedder("~/m", cache="~/cache")
    assert model.encode(TEXTS[:1]).shape == (1, 32)
    model.save_sentence_transformer("~/exported")
    assert sorted(os.listdir(home)) == ["cache", "exported", "m"]
    assert InBedder("mini", beside="~/m").encode(TEXTS[:1], "What?").shape == (1, 384 + 32)
    with pytest.raises(ModelError, match="missing"):
        InBedder("~/missing")


def test_an_index_and_its_lock_are_in_the_home_folder(home, make_model):
    pytest.importorskip("lancedb")
    from inbedder.search import Index

    model = InBedder(make_model("bert"))
    assert len(Index.create("~/idx", TEXTS, model)) == 4
    index = Index.open("~/idx", model)
    assert index.add(["Great price"]) == 1
    assert os.listdir(home) == ["idx"]


def test_the_input_of_a_job_is_in_the_home_folder(home):
    (home / "rows").mkdir()
    (home / "rows" / "a.txt").write_text("cats\ndogs\n")
    assert scan_source("~/rows").rows == scan_source("~/rows/a.txt").rows == 2
