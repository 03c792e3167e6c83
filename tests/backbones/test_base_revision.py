"""An adapter's base on the hub is loaded at one commit, and without the trust in the adapter. The hub is a local cache."""

import json
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
from huggingface_hub import constants, hf_hub_download
from safetensors.torch import load_file, save_file

from inbedder import InBedder
from inbedder.errors import InputError, ModelError
from inbedder.vector_spec import VectorSpec
from tests.backbones.test_file_checks import make_adapter

OLD, NEW = "a" * 40, "b" * 40
BASE = "someone/base"


@pytest.fixture
def hub(make_model, tmp_path, monkeypatch):
    """Fill a cache with two commits of a base, of which main is the second; return the folder of the snapshots."""
    assert constants.HF_HUB_OFFLINE
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--base"
    for commit in (OLD, NEW):
        shutil.copytree(make_model("bert"), repository / "snapshots" / commit)
    weights = repository / "snapshots" / OLD / "model.safetensors"
    save_file({name: tensor * 1.5 for name, tensor in load_file(weights).items()}, weights, metadata={"format": "pt"})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(NEW)
    return repository / "snapshots"


@pytest.fixture
def adapter(make_model, tmp_path):
    """Return a function that saves an adapter of the base with changed settings."""

    def make(**settings):
        folder = make_adapter(make_model("bert"), tmp_path / "adapter")
        config = json.loads((folder / "adapter_config.json").read_text())
        config |= {"base_model_name_or_path": BASE, **settings}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        return folder

    return make


def encode(model):
    return model.encode("I love cats", "What?")


def test_the_adapters_own_setting_names_the_commit_of_its_base(hub, adapter):
    folder = adapter(revision=OLD)
    pinned, newest = InBedder(folder), InBedder(folder, base_revision="main")
    assert (pinned.spec.base_revision, newest.spec.base_revision) == (OLD, NEW)
    assert pinned.revision != newest.revision
    assert not np.allclose(encode(pinned), encode(newest))


def test_a_stored_spec_loads_the_base_at_its_commit_again(hub, adapter):
    folder = adapter()
    model = InBedder(folder)
    assert model.spec.base_revision == NEW
    (hub.parent / "refs" / "main").write_text(OLD)
    reloaded = VectorSpec.from_json(model.spec.to_json()).load(InBedder)
    assert reloaded.spec == model.spec
    assert np.array_equal(encode(reloaded), encode(model))
    assert not np.allclose(encode(InBedder(folder)), encode(model))


def test_all_files_of_a_hub_model_are_read_at_one_commit(hub, monkeypatch):
    lookups = Mock(wraps=hf_hub_download)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lookups)
    InBedder(BASE)
    assert [call.kwargs["revision"] for call in lookups.mock_calls] == [None, *[NEW] * (lookups.call_count - 1)]


def test_a_revision_that_is_no_string_is_refused(hub, adapter):
    with pytest.raises(ModelError, match=r"revision in .*adapter_config.json is 3; it must be a commit"):
        InBedder(adapter(revision=3))


def test_a_model_that_is_no_adapter_has_no_base_revision(make_model):
    with pytest.raises(InputError, match="base_revision is for adapters"):
        InBedder(make_model("bert"), base_revision="main")
    assert InBedder(make_model("bert")).spec.base_revision is None


def test_trust_in_an_adapter_does_not_reach_its_base(hub, adapter, tmp_path):
    marker = tmp_path / "marker"
    config = json.loads((hub / NEW / "config.json").read_text())
    config |= {"model_type": "other", "auto_map": {"AutoConfig": "code.OtherConfig"}}
    (hub / NEW / "config.json").write_text(json.dumps(config))
    (hub / NEW / "code.py").write_text(f"open({str(marker)!r}, 'w')\nclass OtherConfig: pass\n")
    with pytest.raises(ModelError, match="counts for a model and not for the base of an adapter"):
        InBedder(adapter(), trust_remote_code=True)
    assert not marker.exists()
