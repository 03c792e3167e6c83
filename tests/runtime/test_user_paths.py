"""A path that begins with ~ is in the home folder, wherever it enters."""

import os
from pathlib import Path

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.distributed.job_folder import scan_source
from inbedder.errors import InputError, ModelError
from inbedder.io.files import atomic_folder, atomic_write, check_target, is_same_file
from inbedder.runtime.user_paths import expand_name, expand_path

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


def test_the_command_line_expands_every_path(home, make_model, monkeypatch, capsys):
    from inbedder.cli.app import app

    (home / "rows.csv").write_text("text\nI love cats\nI love dogs\nThe parcel is late\nThe parcel is lost\n")
    (home / "m").symlink_to(make_model("bert"))

    def run(*arguments):
        app(arguments, standalone_mode=False)

    run("embed", "~/rows.csv", "--model=~/m", "--output=~/v.npy", "--cache=~/cache")
    run("cache", "info", "~/cache")
    run("cluster", "~/rows.csv", "-i", "What?", "-k2", "--model=~/m", "--output=~/r.html", "--output=~/g.csv", "--save=~/groups")
    run("assign", "~/groups", "~/rows.csv", "--output=~/assigned.csv")
    assert sorted(os.listdir(home)) == ["assigned.csv", "cache", "g.csv", "groups", "m", "r.html", "rows.csv", "v.npy"]


def test_the_server_expands_models_keys_and_settings(home):
    pytest.importorskip("fastapi")
    from inbedder.server.settings import load_settings

    (home / "key").write_text("secret")
    (home / "settings.yaml").write_text("port: 9000\nmodel: [big=~/m, ~/n]\napi_key_file: ~/key\n")
    settings = load_settings("~/settings.yaml")
    assert settings.port == 9000 and settings.read_key() == "secret"
    assert settings.named_models == {"big": str(home / "m"), "n": str(home / "n")}


def test_a_conditional_encoder_is_in_the_home_folder(home):
    from inbedder import ConditionalEncoder
    from inbedder.conditional.config import Encoding, is_conditional_encoder

    (home / "encoder").mkdir()
    ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding(kind="bi")).save("~/encoder")
    assert isinstance(is_conditional_encoder("~/encoder"), bool)
    assert ConditionalEncoder.load("~/encoder").encoding.kind == "bi"


def test_the_paths_of_a_recipe_are_in_the_home_folder(home):
    pytest.importorskip("pydantic")
    from inbedder_evaluation.tasks import Data
    from inbedder_finetune.answering.answering_recipe import parse_recipe
    from inbedder_finetune.conditional.rated_pairs import find_file
    from inbedder_finetune.mining import read_tasks
    from inbedder_finetune.recipe import read_settings

    (home / "r.yaml").write_text(
        "model: ~/m\ndata: {folder: ~/data, cache: ~/cache, sources: [{path: ~/rows.csv}]}\n"
        "training: {output: ~/runs}\nlora: {init_adapter: ~/adapter}\n"
    )
    recipe = parse_recipe(read_settings("~/r.yaml"))
    paths = [recipe.data.folder, recipe.data.cache, recipe.data.sources[0].path, recipe.training.output, recipe.lora.init_adapter]
    assert paths == [str(home / name) for name in ("data", "cache", "rows.csv", "runs", "adapter")]
    assert find_file("~/pairs.csv", "~/data") == home / "pairs.csv"
    assert find_file("pairs.csv", "~/data") == home / "data" / "pairs.csv"
    assert Data(source=Path("~/rows.csv")).source == home / "rows.csv"
    with pytest.raises(InputError, match=str(home)):
        read_tasks("~/tasks")
