import json
import shutil

import gguf
import pytest
import torch
from safetensors.torch import load_file

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder.models.converted import MANIFEST, check_converted, write_converted
from inbedder.models.gguf import get_converted_folder, share_word_matrix, write_decoder
from tests.backbones.checkpoints import nothing_unpickled, plant
from tests.models.conftest import write_gguf


def test_a_gguf_file_gives_the_weights_that_it_holds(tiny_gguf, home):
    path, model = tiny_gguf
    loaded = InBedder(path, dtype="float32").backbone.model.state_dict()
    expected = model.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in loaded)


def test_a_gguf_file_embeds_and_answers(tiny_gguf, home):
    model = InBedder(str(tiny_gguf[0]))
    assert model.backbone.kind == "causal"
    assert model.encode(["I love cats", ""], "What?").shape == (2, 32)
    assert len(model.answer(["I love cats", ""], "What?")) == 2


def test_a_conversion_prints_nothing(tiny_gguf, home, capfd):
    get_converted_folder(tiny_gguf[0])
    assert capfd.readouterr() == ("", "")


def test_a_file_is_converted_once(tiny_gguf, home, monkeypatch):
    first = get_converted_folder(tiny_gguf[0])
    monkeypatch.setattr("inbedder.models.gguf.write_converted", lambda *_: pytest.fail("converted again"))
    assert get_converted_folder(tiny_gguf[0]) == first


def test_a_changed_file_is_converted_again(tiny_gguf, home, tmp_path):
    copy = tmp_path / "tiny.gguf"
    copy.write_bytes(tiny_gguf[0].read_bytes())
    first = get_converted_folder(copy)
    copy.write_bytes(tiny_gguf[0].read_bytes() + b"\0")
    assert get_converted_folder(copy) != first


def test_a_file_that_is_no_gguf_leaves_nothing(home, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and then nothing")
    with pytest.raises(ModelError, match=r"Cannot read .*bad.gguf as the GGUF file of a decoder"):
        InBedder(bad)
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_an_interrupted_conversion_leaves_nothing(tiny_gguf, home, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("inbedder.models.converted.hash_file", stop)
    with pytest.raises(KeyboardInterrupt):
        write_converted(tiny_gguf[0], home / "gguf" / "x", write_decoder)
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_what_a_killed_conversion_left_is_removed(tiny_gguf, home):
    leftover = home / "gguf" / ".tiny-0123456789abcdef-inbedder-abcdefgh"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half")
    folder = get_converted_folder(tiny_gguf[0])
    assert list(folder.parent.iterdir()) == [folder]


def test_converted_weights_that_changed_are_refused(tiny_gguf, home):
    folder = home / "gguf" / "x"
    write_converted(tiny_gguf[0], folder, write_decoder)
    check_converted(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=r"model.safetensors in .* changed after the conversion"):
        check_converted(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        check_converted(folder)


def test_a_conversion_that_was_damaged_is_not_loaded(tiny_gguf, home):
    folder = get_converted_folder(tiny_gguf[0])
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=r"changed after the conversion. Remove the folder to convert"):
        InBedder(tiny_gguf[0])
    for content in ("[]", "[" * 100_000):
        (folder / MANIFEST).write_text(content)
        with pytest.raises(ModelError, match="is damaged"):
            InBedder(tiny_gguf[0])


def test_what_lies_beside_a_file_is_not_read(tiny_gguf, home, tmp_path, monkeypatch):
    expected = InBedder(tiny_gguf[0]).encode("a", "What?")
    copy = shutil.copy(tiny_gguf[0], tmp_path / "other.gguf")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(tmp_path)}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": [None, "custom.T"]}}))
    (tmp_path / "custom.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    plant(tmp_path / "adapter_model.bin", tmp_path / "marker")
    with nothing_unpickled(monkeypatch, tmp_path / "marker"):
        assert (InBedder(copy).encode("a", "What?") == expected).all()


def test_a_folder_that_cannot_be_written_is_named(tiny_gguf, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INBEDDER_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="Set INBEDDER_HOME"):
        get_converted_folder(tiny_gguf[0])


def test_a_word_matrix_that_stands_twice_is_tied_to_the_output(home, tmp_path, capfd):
    kinds = (gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q8_0)
    words = write_gguf(tmp_path / "twice.gguf", kinds).get_input_embeddings().weight.detach().numpy()
    folder = get_converted_folder(tmp_path / "twice.gguf")
    state = load_file(folder / "model.safetensors")
    output = gguf.quants.dequantize(gguf.quants.quantize(words, kinds[1]), kinds[1])
    assert torch.equal(state["model.embed_tokens.weight"], torch.from_numpy(output).bfloat16())
    assert "lm_head.weight" not in state
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    model = InBedder(tmp_path / "twice.gguf").backbone.model
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert "de-quantizing" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("noise", [0.15, 1.0])
def test_word_matrices_that_differ_stay_two(home, tmp_path, noise):
    kinds = (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q8_0)
    write_gguf(tmp_path / "two.gguf", kinds, output_noise=noise)
    folder = get_converted_folder(tmp_path / "two.gguf")
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= load_file(folder / "model.safetensors").keys()
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False


def test_an_architecture_that_cannot_tie_keeps_both_matrices(home, tmp_path):
    model = write_gguf(tmp_path / "tied.gguf")
    model.get_output_embeddings().weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model._tied_weights_keys = None
    assert not share_word_matrix(model)
