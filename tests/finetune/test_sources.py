"""Sources on the hub are pinned to a commit, which the result records."""

import json
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.train_answering import finetune
from inbedder_finetune.sources import Source, resolve_revision
from tests.finetune.answering.test_train_answering import make_recipe

COMMITS = ["05bec95" + "0" * 33, "05bec96" + "1" * 33, "a" * 40]


@pytest.fixture
def hub(monkeypatch):
    """Replace the hub by one with three commits; returns the revisions that its data sets were read at."""
    history = [SimpleNamespace(commit_id=commit) for commit in COMMITS]
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_commits", lambda _self, _name, *, repo_type: history)
    newest = SimpleNamespace(sha=COMMITS[0])
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda _self, _name, *, revision: newest)
    revisions = []

    def load_dataset(_path, _config, *, revision, **_options):
        revisions.append(revision)
        return [{"input": f"I love cats {i}", "instruction": "What?", "output": "cats"} for i in range(8)] + [{"input": ""}]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return revisions


@pytest.mark.parametrize(
    ("revision", "commit"), [(None, COMMITS[0]), ("main", COMMITS[0]), ("05bec96", COMMITS[1]), ("aaaaaaaa", COMMITS[2])]
)
def test_a_revision_is_pinned_to_its_whole_commit(hub, revision, commit):
    assert resolve_revision(Source(hub="someone/set", revision=revision)).revision == commit


def test_a_commit_and_a_file_need_no_hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", None)
    for source in (Source(hub="someone/set", revision=COMMITS[2]), Source("qa.jsonl")):
        assert resolve_revision(source) is source


def test_an_unknown_commit_and_an_unreachable_hub_are_named(hub, monkeypatch):
    with pytest.raises(RecipeError, match="someone/set has no commit 1234567 on its main branch"):
        resolve_revision(Source(hub="someone/set", revision="1234567"))

    def fail(*_arguments, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    with pytest.raises(RecipeError, match=r"Cannot read someone/set from the hub .*no route.*set path to its file"):
        resolve_revision(Source(hub="someone/set"))


def test_the_result_records_the_commit_of_its_data(hub, make_model, data, tmp_path):
    sources = [{"hub": "someone/set", "revision": "05bec96"}]
    more_data = {"sources": sources, "skip_bad": True}
    recipe = make_recipe(make_model("opt"), data, tmp_path / "out", more_data=more_data, training={"max_steps": 1})
    folder = finetune(recipe)
    assert hub == [COMMITS[1]]
    assert json.loads((folder / "run.json").read_text())["data"]["sources"][0]["revision"] == COMMITS[1]
    card = (folder / "README.md").read_text()
    assert f"Data from the hub: someone/set at commit {COMMITS[1]}." in card and "| someone/set | 8 |" in card
