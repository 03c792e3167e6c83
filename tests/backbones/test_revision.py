import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from inbedder import InBedder
from inbedder.backbones import revision
from inbedder.backbones.hub import open_model
from inbedder.backbones.weights import find_model
from inbedder.errors import ModelError
from inbedder.models.install import ADAPTERS
from inbedder.options import ModelOptions


def retrain(folder):
    """Replace the weights of a model, as an optimizer would."""
    tensors = {name: tensor * 1.5 for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "new.safetensors", metadata={"format": "pt"})
    (folder / "new.safetensors").replace(folder / "model.safetensors")


@pytest.fixture
def folder(make_model, tmp_path):
    return shutil.copytree(make_model("bert"), tmp_path / "model")


def test_the_revision_is_that_of_the_weights_that_were_loaded(folder):
    before = InBedder(folder).revision
    old = InBedder(folder)
    retrain(folder)
    assert old.revision == before != InBedder(folder).revision


def test_vectors_of_old_weights_are_not_kept_under_the_new_ones(folder, tmp_path):
    old = InBedder(folder, cache=tmp_path / "kept")
    retrain(folder)
    former = old.encode("a", "What?")
    latter = InBedder(folder, cache=tmp_path / "kept").encode("a", "What?")
    assert np.array_equal(latter, InBedder(folder).encode("a", "What?"))
    assert np.abs(former - latter).max() > 1e-3


def test_large_weights_are_hashed_late_and_refused_if_they_changed(folder, monkeypatch):
    expected = InBedder(folder).revision
    monkeypatch.setattr(revision, "MAX_EAGER_BYTES", 0)
    assert InBedder(folder).revision == expected
    model = InBedder(folder)
    retrain(folder)
    with pytest.raises(ModelError, match=r"model.safetensors changed since the model was loaded from it. Load the model again"):
        _ = model.revision


def test_weights_that_change_while_they_are_loaded_are_refused(folder):
    resolved = find_model(open_model(str(folder)), ModelOptions())
    retrain(folder)
    with pytest.raises(ModelError, match="changed since the model was loaded"):
        resolved.files.check()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="changed since the model was loaded"):
        _ = resolved.files.revision


def test_settings_of_an_adapter_count_as_they_were_when_it_was_loaded(make_model, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForMaskedLM

    base = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["query"])).save_pretrained(tmp_path)
    before, model = InBedder(tmp_path).spec.files, InBedder(tmp_path)
    config = tmp_path / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 16'))
    assert model.spec.files == before != InBedder(tmp_path).spec.files


def test_the_same_files_have_the_same_revision_under_every_name(make_model, tmp_path, monkeypatch):
    folder = Path(make_model("bert"))
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    specs = [InBedder(name).spec for name in (folder, str(folder), "copy", tmp_path / "copy")]
    assert len({spec.key() for spec in specs}) == 1
    assert specs[0].differences(specs[-1], exact=True) == []


def test_the_bundled_model_is_the_same_by_its_name_and_by_its_folder():
    assert InBedder("mini").spec.key() == InBedder(ADAPTERS["mini"]).spec.key()


def test_dtype_and_transformers_version_do_not_change_the_files_hash(make_model, tmp_path):
    shutil.copytree(make_model("bert"), tmp_path / "m")
    before = InBedder(tmp_path / "m").spec
    config = tmp_path / "m" / "config.json"
    config.write_text(re.sub(r'"transformers_version": "[^"]*"', '"transformers_version": "4.0.0"', config.read_text()))
    assert InBedder(tmp_path / "m").spec.files == before.files
    assert InBedder(tmp_path / "m", dtype="bfloat16").spec.differences(before) == []
    assert InBedder(tmp_path / "m", dtype="bfloat16").spec.differences(before, exact=True) == [
        "compute_dtype was 'bfloat16' and is 'float32'"
    ]
