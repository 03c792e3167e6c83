import json
import shutil

import pytest

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder.models import bundled, install
from inbedder.models.checksums import CHECKSUMS, check_checksums, get_digest, write_checksums


def find_in(folder):
    return lambda file: folder / file if (folder / file).is_file() else None


@pytest.fixture
def saved(make_model, tmp_path):
    """Return the folder of a model with checksums."""
    folder = shutil.copytree(make_model("bert"), tmp_path / "saved")
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "config.json").write_text("{}")
    (folder / "run.json").write_text("{}")
    write_checksums(folder)
    return folder


def flip(path, position=-9):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_what_decides_a_vector_is_listed_and_nothing_else(saved):
    digests = json.loads((saved / CHECKSUMS).read_text())
    assert set(digests) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    check_checksums(find_in(saved), required=True)
    assert InBedder(saved).encode("a", "What?").shape == (32,)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_flipped_bit_is_refused_and_the_file_named(saved, file):
    flip(saved / file)
    with pytest.raises(ModelError, match=rf"{file} is not the file that was saved .*: train or download the model again"):
        InBedder(saved)


def test_a_file_that_is_gone_is_named(saved):
    (saved / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer_config.json, which .*checksums.json lists, is missing"):
        InBedder(saved)


@pytest.mark.parametrize("content", ["", "[]", '{"a.safetensors": 3}', '{"../a.safetensors": "00"}'])
def test_damaged_checksums_are_named(saved, content):
    (saved / CHECKSUMS).write_text(content)
    with pytest.raises(ModelError, match=r"checksums.json is damaged"):
        InBedder(saved)


def test_a_model_without_checksums_loads_unless_they_are_required(saved):
    (saved / CHECKSUMS).unlink()
    check_checksums(find_in(saved))
    with pytest.raises(ModelError, match=r"has no checksums.json"):
        check_checksums(find_in(saved), required=True)


def test_a_digest_is_computed_again_when_the_file_changed(tmp_path):
    (tmp_path / "a").write_text("one")
    before = get_digest(tmp_path / "a")
    (tmp_path / "a").write_text("other")
    assert before != get_digest(tmp_path / "a")


@pytest.mark.parametrize("name", install.ADAPTERS)
def test_the_bundled_models_are_what_their_checksums_say(name):
    folder = install.ADAPTERS[name]
    assert set(json.loads((folder / CHECKSUMS).read_text())) == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "inbedder.json",
    }
    check_checksums(find_in(folder), required=True)


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_config.json", "inbedder.json", CHECKSUMS])
def test_a_bundled_model_that_was_damaged_is_refused(tmp_path, monkeypatch, file):
    folder = shutil.copytree(install.ADAPTERS["mini"], tmp_path / "mini")
    monkeypatch.setitem(install.ADAPTERS, "mini", folder)
    flip(folder / file, position=9)
    with pytest.raises(ModelError, match=r"reinstall inbedder"):
        bundled.resolve_name("mini")
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ModelError, match=r"Reinstall inbedder"):
        bundled.resolve_name("mini")
