import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from inbedder import InBedder
from inbedder.encoding import saved_model
from inbedder.errors import InputError, ModelError
from tests.conftest import TEXTS

QUESTION = "What animals do they love?"
CARD = '# complaints\n\n`InBedder("complaints")` loads it.\n'


@pytest.fixture
def trained_folder(late_adapter, tmp_path):
    """Copy the adapter to a folder as training leaves it: with a card, a checkpoint and a pickle."""
    folder = Path(shutil.copytree(late_adapter, tmp_path / "complaints"))
    (folder / "README.md").write_text(CARD)
    (folder / "checkpoint-10").mkdir()
    for name in ("checkpoint-10/model.safetensors", "training_args.bin", ".lock"):
        (folder / name).write_bytes(b"x")
    return folder


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {"mask_length": 2, "template": "alpaca"}),
        ("opt", {"normalize_embeddings": True, "template": "{input} {instruction}"}),
        ("qwen2", {"subtract_instruction": True, "max_new_tokens": 5}),
        ("t5", {"min_confidence": 0.5}),
    ],
)
def test_a_saved_model_loads_with_equal_vectors(make_model, tmp_path, monkeypatch, family, options):
    model = InBedder(make_model(family), **options)
    for source in (saved_model._find_source(model.pipeline), None):  # the folder's files, or weights written anew
        monkeypatch.setattr(saved_model, "_find_source", lambda _pipeline, source=source: source)
        folder = tmp_path / str(source is None)
        model.save_pretrained(folder)
        loaded = InBedder(folder)
        assert loaded.options.encoding == model.options.encoding
        np.testing.assert_array_equal(loaded.encode(TEXTS, QUESTION), model.encode(TEXTS, QUESTION))
        assert loaded.answer(TEXTS, QUESTION) == model.answer(TEXTS, QUESTION)
        assert (folder / "README.md").read_text().startswith("---\nlibrary_name: inbedder\n")


def test_a_trained_folder_keeps_its_card_and_adapter_but_no_checkpoint(trained_folder, tmp_path):
    model = InBedder(trained_folder)
    model.save_pretrained(tmp_path / "out")
    assert (tmp_path / "out" / "README.md").read_text().endswith(CARD)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "adapter_model.safetensors" in names and not names & {
        "checkpoint-10",
        "training_args.bin",
        ".lock",
        "model.safetensors",
    }
    loaded = InBedder(tmp_path / "out")
    assert loaded.spec.contents() == model.spec.contents()
    np.testing.assert_array_equal(loaded.encode(TEXTS, QUESTION), model.encode(TEXTS, QUESTION))


def test_options_that_a_folder_does_not_store_are_refused(make_model, tmp_path):
    model = InBedder(make_model("opt"), layer=1, truncate_dim=8)
    with pytest.raises(InputError, match=r"does not store layer=1, truncate_dim=8. Save the model without"):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"is not empty. Choose a new folder"):
        InBedder(make_model("opt")).save_pretrained(make_model("opt"))


class LocalHub:
    """A hub in a folder, with the methods of ``HfApi`` that a push calls."""

    def __init__(self, folder):
        self.folder, self.calls, self.error = folder, [], None

    def __call__(self, token=None):
        self.calls.append(("token", token))
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        if self.error:
            raise self.error
        self.calls.append(("create", repo_id, private, exist_ok))
        return SimpleNamespace(repo_id=f"me/{repo_id.split('/')[-1]}")

    def create_branch(self, repo_id, *, branch, exist_ok):
        self.calls.append(("branch", repo_id, branch, exist_ok))

    def upload_folder(self, *, repo_id, folder_path, commit_message, revision, create_pr):
        self.calls.append(("upload", repo_id, commit_message, revision, create_pr))
        shutil.copytree(folder_path, self.folder / repo_id)
        return SimpleNamespace(commit_url=f"hub/{repo_id}/commit/1", pr_url=f"hub/{repo_id}/discussions/1")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = LocalHub(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    return hub


def test_a_trained_folder_is_pushed_with_a_card_that_names_the_repository(trained_folder, hub, monkeypatch):
    config = trained_folder / "adapter_config.json"
    model = InBedder(trained_folder)
    with pytest.raises(ModelError, match=r"needs the local folder .*, which others do not have. Push that model first"):
        model.push_to_hub("complaints")
    assert hub.calls == []
    monkeypatch.setattr(saved_model, "_check_bases", lambda _pipeline: None)  # the base of a test is a folder
    assert model.push_to_hub("complaints", private=True, token="t", revision="v1") == "hub/me/complaints/commit/1"
    assert hub.calls[0] == ("token", "t") and hub.calls[1] == ("create", "complaints", True, False)
    assert hub.calls[2:] == [
        ("branch", "me/complaints", "v1", True),
        ("upload", "me/complaints", "Add a model of inbedder", "v1", False),
    ]
    pushed_folder = hub.folder / "me" / "complaints"
    assert json.loads((pushed_folder / config.name).read_text()) == json.loads(config.read_text())
    np.testing.assert_array_equal(InBedder(pushed_folder).encode(TEXTS, QUESTION), model.encode(TEXTS, QUESTION))
    card = (pushed_folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: inbedder\n") and '`InBedder("complaints")` loads it.' in card


def test_a_pull_request_is_opened_in_an_existing_repository(make_model, hub):
    assert InBedder(make_model("opt")).push_to_hub("me/opt", create_pr=True) == "hub/me/opt/discussions/1"
    assert hub.calls[1] == ("create", "me/opt", None, True)
    assert 'InBedder("me/opt").encode(texts' in (hub.folder / "me" / "opt" / "README.md").read_text()


@pytest.mark.parametrize("error", [HFValidationError("Repo id 'a b' is wrong"), ConnectionError("no network"), "409 Conflict"])
def test_a_refused_push_says_why_and_what_to_check(make_model, hub, error):
    if error == "409 Conflict":
        error = HfHubHTTPError(error, response=SimpleNamespace(headers={}, request=None, status_code=409))
    hub.error = error
    with pytest.raises(ModelError, match=r"'a b' was not pushed \(.+\). Check its name, the network and `hf auth whoami`"):
        InBedder(make_model("opt")).push_to_hub("a b")
